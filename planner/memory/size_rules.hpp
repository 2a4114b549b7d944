#pragma once

#include <cstdint>
#include <limits>

#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

using types::Bytes;

/// What PYTORCH_CUDA_ALLOC_CONF says.
struct AllocatorConfig {
    /// `roundup_power2_divisions:N`: sizes are rounded up to one of N steps between powers of two; 0 or 1: off.
    /// A power of two.
    std::int64_t roundup_power2_divisions = 0;
    /// `max_split_size_mb`: blocks of this size and above are neither split nor lent to smaller requests.
    Bytes max_split_size{std::numeric_limits<std::int64_t>::max()};
    /// `max_non_split_rounding_mb`: by how much an unsplittable block may exceed the request that it serves.
    Bytes max_non_split_rounding{20LL << 20};
    /// `expandable_segments:True`: one range of addresses per stream and pool that is mapped piece by piece.
    bool expandable_segments = false;

    [[nodiscard]] constexpr bool limits_splitting() const {
        return max_split_size.count != std::numeric_limits<std::int64_t>::max();
    }
};

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
constexpr Bytes segment_size(Bytes block) {
    if (block <= kSmallLimit) return kSmallSegment;
    if (block < kLargeSegmentLimit) return kLargeSegment;
    return Bytes{(block.count + kSegmentStep.count - 1) / kSegmentStep.count * kSegmentStep.count};
}

/// What an expandable segment is mapped and unmapped in.
constexpr Bytes granule(PoolClass pool) { return pool == PoolClass::small ? kSmallSegment : kLargeSegment; }

/// What is mapped, from the start of a granule on, so that at least `size` bytes are.
constexpr Bytes mapped_size(PoolClass pool, Bytes size) {
    const std::int64_t step = granule(pool).count;
    return Bytes{(size.count + step - 1) / step * step};
}

/// The whole granules in a range of an expandable segment: what can be unmapped of a free block.
struct GranuleRange {
    Bytes offset;  ///< from the start of the segment
    Bytes size;    ///< zero if the range holds no whole granule
};
constexpr GranuleRange whole_granules(PoolClass pool, Bytes offset, Bytes size) {
    const std::int64_t step = granule(pool).count;
    const Bytes begin = mapped_size(pool, offset);
    const Bytes end{(offset + size).count / step * step};
    return begin < end ? GranuleRange{begin, end - begin} : GranuleRange{offset, Bytes{}};
}

/// The addresses that an expandable segment is given: 1 1/8 of the device's memory, in whole granules.
constexpr Bytes expandable_range(PoolClass pool, Bytes device_memory) {
    return mapped_size(pool, device_memory + Bytes{device_memory.count / 8});
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
