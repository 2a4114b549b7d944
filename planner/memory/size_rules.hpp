#pragma once

#include <algorithm>
#include <cstdint>

#include "planner/memory/allocator_config.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

/// The two pools of block sizes: they never share a segment.
enum class PoolClass : std::uint8_t { small, large };

// Source: PyTorch, c10/cuda/CUDACachingAllocator.cpp (2.11): round_size, get_pool, get_allocation_size, should_split;
// for expandable segments map, unmap, find_expandable_block.

inline constexpr Bytes kMinBlock{512};
inline constexpr Bytes kSmallLimit{1LL << 20};          ///< largest block of the small pool
inline constexpr Bytes kSmallSegment{2LL << 20};        ///< segment of the small pool
inline constexpr Bytes kLargeSegmentLimit{10LL << 20};  ///< from here on a block gets a segment of its own
inline constexpr Bytes kLargeSegment{20LL << 20};       ///< segment of the large pool below that limit
inline constexpr Bytes kSegmentStep{2LL << 20};         ///< what own segments are rounded up to

/// The size of the block that serves a request of `size` bytes: a multiple of 512, at least 512.
Bytes block_size(const AllocatorConfig& config, Bytes size);

constexpr PoolClass pool_class(Bytes block) { return block <= kSmallLimit ? PoolClass::small : PoolClass::large; }

/// The size of a new segment for a block of `block` bytes.
constexpr Bytes segment_size(Bytes block, Bytes large_segment = kLargeSegment) {
    if (block <= kSmallLimit) return kSmallSegment;
    if (block < kLargeSegmentLimit) return large_segment;
    return Bytes{(block.count + kSegmentStep.count - 1) / kSegmentStep.count * kSegmentStep.count};
}

/// What an expandable segment is mapped and unmapped in.
constexpr Bytes granule(PoolClass pool, Bytes large_segment = kLargeSegment) {
    return pool == PoolClass::small ? kSmallSegment : large_segment;
}

/// What is mapped, from the start of a granule on, so that at least `size` bytes are.
constexpr Bytes mapped_size(Bytes granule, Bytes size) {
    return Bytes{(size.count + granule.count - 1) / granule.count * granule.count};
}

/// The whole granules in a range of an expandable segment: what can be unmapped of a free block.
struct GranuleRange {
    Bytes offset;  ///< from the start of the segment
    Bytes size;    ///< zero if the range holds no whole granule
};
constexpr GranuleRange whole_granules(Bytes granule, Bytes offset, Bytes size) {
    const Bytes begin = mapped_size(granule, offset);
    const Bytes end{(offset + size).count / granule.count * granule.count};
    return begin < end ? GranuleRange{begin, end - begin} : GranuleRange{offset, Bytes{}};
}

/// The addresses that an expandable segment is given: 1 1/8 of the device's memory, in whole granules. One at
/// least: a device may be full of what is not the allocator's, and then refuses to map it.
constexpr Bytes expandable_range(Bytes granule, Bytes device_memory) {
    return std::max(granule, mapped_size(granule, device_memory + Bytes{device_memory.count / 8}));
}

/// Whether a free block of `available` bytes is cut to serve one of `wanted`; if not, the rest is slack that counts as
/// allocated.
constexpr bool splits(const AllocatorConfig& config, PoolClass pool, Bytes available, Bytes wanted) {
    const Bytes rest = available - wanted;
    if (pool == PoolClass::small || config.expandable_segments) return rest >= kMinBlock;
    return wanted < config.max_split_size && rest > kSmallLimit;
}

/// Whether a free block of `available` bytes, the best fit, may serve `wanted` at all.
constexpr bool may_serve(const AllocatorConfig& config, Bytes available, Bytes wanted) {
    if (!config.limits_splitting()) return true;
    if (wanted < config.max_split_size) return available < config.max_split_size;
    return available < wanted + config.max_non_split_rounding;
}

}  // namespace stowage::memory
