#pragma once

// How many rows each expert got, as the host sees it: every place of a counts_to_host, a layer and microbatch, copies
// into pinned memory of its own, so that a captured copy has somewhere to write whenever it is replayed.
//
// Tested by: tests/executor/workload/moe_counts_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "executor/cuda/pinned_arena.hpp"
#include "executor/workload/workload.hpp"

namespace stowage::executor {

class HostCounts {
public:
    /// Makes room for copies of up to `experts` counts. Throws: DeviceError.
    void prepare(std::int64_t experts);

    /// Copies counts of the call on `stream`. Throws: std::logic_error for an operand too many or too few and if there
    /// was no `prepare`; DeviceError, also if more room is needed while the stream is captured: a step has more places
    /// than that, and its first copies must be made outside.
    void copy(const layers::CallSizes& sizes, std::span<void* const> buffers, const LaunchPlace& place,
              cudaStream_t stream);

    /// Looks at what was copied since it was last called; the copies must be complete. Copies come in the same order
    /// each step, so that it looks on from where it stopped, and at all places only if nothing is there.
    /// Throws: types::Error with exit code 4 for an expert with more rows than planned.
    void require_planned();

private:
    struct Copy {
        std::int32_t* counts = nullptr;  ///< pinned; the device writes it
        std::int64_t experts = 0;
        std::int64_t planned = 0;  ///< rows of an expert, at most
        LaunchPlace place;
    };
    struct Slab {
        PinnedBuffer memory;
        std::int64_t experts = 0;  ///< of one place
        std::int64_t used = 0;     ///< places
    };
    void add_slab();
    Copy& copy_at(const layers::CallSizes& sizes, const LaunchPlace& place);
    static bool take(Copy& copy);

    std::int64_t experts_ = 0;
    std::vector<Slab> slabs_;
    std::vector<Copy> copies_;  ///< in the order in which they were first made
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> of_place_;
    std::size_t next_ = 0;
};

}  // namespace stowage::executor
