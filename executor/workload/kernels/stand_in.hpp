#pragma once

// A kernel in place of another one: as long, of the same class, moving as many bytes; what it writes depends on every
// bit that it reads.
//
// Every warp has the same share of the bytes and moves it in pieces of 2 KiB, each no sooner than its share of the
// length; between them and until the end it multiplies matrices on the tensor cores or, if memory-bound, waits. So the
// length is the one asked for unless memory cannot move the bytes in that time; then the operands' bytes take as long
// as they take, and of the rest what is left at the end is not read.
//
// A written vector is a hash of the read vectors at the same place (modulo the shorter side, so that each is read and
// written once) and of a sum over the 2 KiB around it. Where less than a sixteenth of what is read is written, all of
// it is a hash of one sum over all that is read.
//
// One block a processor, with three quarters of its registers: others' kernels find room beside it.
//
// Tested by: tests/executor/workload/stand_in_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor::kernels {

/// So many 16-byte vectors from an address that is a multiple of 16.
struct StandInBuffer {
    void* buffer = nullptr;
    std::int64_t vectors = 0;
};
inline constexpr int kMostStandInBuffers = 8;

/// Where a sum over all blocks is kept while a kernel runs; zero before and after it. One for each kernel that may run
/// at the same time.
struct StandInScratch {
    unsigned long long sum = 0;
    unsigned int blocks = 0;
};

struct StandIn {
    std::span<const StandInBuffer> reads;   ///< at most kMostStandInBuffers
    std::span<const StandInBuffer> writes;  ///< at least one, at most kMostStandInBuffers; none overlaps a read
    bool adds = false;                      ///< 32-bit words are added to what `writes` holds
    StandInBuffer rest;                     ///< what is read for the traffic that operands do not make
    std::int64_t rest_first = 0;            ///< vectors in front of it in a ring of `rest_ring`
    std::int64_t rest_ring = 0;
    std::int64_t nanoseconds = 0;
    bool tensor_cores = false;
    StandInScratch* scratch = nullptr;
};

/// Without reads, numbers that depend on the key's seed, step and microbatch are written.
void stand_in(const StandIn& work, const LoadKey& key, int multiprocessors, cudaStream_t stream);

}  // namespace stowage::executor::kernels
