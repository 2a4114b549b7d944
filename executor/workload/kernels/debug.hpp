#pragma once

// Kernels that show mistakes: waits that stretch races, values that spread, hashes, and fences.
//
// Tested by: tests/executor/workload/debug_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stowage::executor::kernels {

/// Keeps the stream busy for at least `nanoseconds` by the device's clock, on one thread.
void spin(std::uint64_t nanoseconds, cudaStream_t stream);

/// Fills with 0xff: a NaN in bf16, fp32 and fp64, -1 as an integer.
void poison(void* buffer, std::int64_t bytes, cudaStream_t stream);

/// *digest = the sum, modulo 2^64, over the buffer's 8-byte words of a hash of word and place (`hash_of_word`), with
/// the last bytes padded by zeros. Depends on every bit and its place, not on the launch. The buffer starts at a
/// multiple of 8 bytes.
void digest(const void* buffer, std::int64_t bytes, std::uint64_t* digest, cudaStream_t stream);

/// Fills with a pattern that depends on the place (`fence_byte`).
void fill_fence(void* fence, std::int64_t bytes, cudaStream_t stream);

/// What `check_fence` found; it adds up over calls. Clear with `clear_fence_report`.
struct FenceReport {
    unsigned long long broken_bytes = 0;
    unsigned long long first_offset = 0;  ///< the lowest of a broken byte in its fence; all ones if none is broken
};
void clear_fence_report(FenceReport* report, cudaStream_t stream);
void check_fence(const void* fence, std::int64_t bytes, FenceReport* report, cudaStream_t stream);

}  // namespace stowage::executor::kernels
