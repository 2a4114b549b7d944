#pragma once

// Where buffers lie in one region, such that two of them share bytes only where may_share() lets them. Used by
// plan_memory.
//
// Tested by: tests/planner/memory/planned_memory_test.cpp.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/planned_buffers.hpp"

namespace stowage::memory {

/// Offsets by buffer from the start of the region, and what they span.
struct Placement {
    std::vector<std::int64_t> offsets;
    std::int64_t size = 0;
};

/// Both go through the buffers in the order of their allocations and know nothing of what follows.
enum class Online : std::uint8_t {
    lowest,    ///< the lowest gap that is large enough
    best_fit,  ///< the smallest gap that is large enough
};

/// Places each buffer as it is allocated; the same state of the region and the same allocations give the same offsets.
/// Cost: O(gaps) a buffer.
Placement place_online(const std::vector<PlannedBuffer>& buffers, Online rule);
/// Places the largest first, each as low as those before it let it. Cost: O(N^2 log N).
Placement place_by_size(const std::vector<PlannedBuffer>& buffers);
/// The same with one place for the n-th allocation of every microbatch, for steps whose microbatches allocate alike,
/// one after the other. Result: nothing if they do not. Cost: O(N^2).
std::optional<Placement> place_alike_by_size(const std::vector<PlannedBuffer>& buffers);
/// The most bytes that no placement can make share: at an allocation, those of what is not freed and of what is freed
/// but has not been usable for any allocation since. Cost: O(N) and O(what is freed and not usable) a buffer.
std::int64_t live_peak(const std::vector<PlannedBuffer>& buffers);

/// Bytes as they are placed.
std::int64_t placed_bytes(const PlannedBuffer& buffer);

}  // namespace stowage::memory
