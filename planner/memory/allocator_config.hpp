#pragma once

// What PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF) says to the caching allocator, and its reader.
//
// Source: PyTorch 2.11, c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp (keys, ranges and what a
// list of divisions means).
// Tested by: tests/planner/memory/allocator_config_test.cpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

using types::Bytes;

/// `roundup_power2_divisions`: into how many steps the sizes between two powers of two are divided, for sixteen
/// intervals: up to 2 MiB, 2 to 4 MiB, ... and 32 GiB and above. 0 or 1: not at all. Each is 0 or a power of two.
struct PowerOfTwoDivisions {
    static constexpr std::size_t kIntervals = 16;

    constexpr PowerOfTwoDivisions() = default;
    /// The same number everywhere.
    // NOLINTNEXTLINE(google-explicit-constructor): a number is written where it holds for all intervals
    constexpr PowerOfTwoDivisions(std::int64_t everywhere) { steps.fill(everywhere); }
    [[nodiscard]] std::int64_t of(Bytes size) const;

    std::array<std::int64_t, kIntervals> steps{};

    friend bool operator==(const PowerOfTwoDivisions&, const PowerOfTwoDivisions&) = default;
};

struct AllocatorConfig {
    /// Sizes are rounded up to one of N steps between powers of two.
    PowerOfTwoDivisions roundup_power2_divisions{};
    /// `max_split_size_mb`: blocks of this size and above are neither split nor lent to smaller requests.
    Bytes max_split_size{std::numeric_limits<std::int64_t>::max()};
    /// `max_non_split_rounding_mb`: by how much an unsplittable block may exceed the request that it serves.
    Bytes max_non_split_rounding{20LL << 20};
    /// `expandable_segments:True`: one range of addresses per stream and pool that is mapped piece by piece.
    bool expandable_segments = false;
    /// `large_segment_size_mb`: the segment of blocks above 1 MiB and below 10 MiB, and what an expandable segment of
    /// the large pool is mapped in.
    Bytes large_segment{20LL << 20};
    /// `garbage_collection_threshold`: above this part of the allowed memory, cached blocks of more than average age
    /// are given back before the device is asked. 0: never. Without effect unless a memory fraction is set.
    double garbage_collection_threshold = 0;
    /// `per_process_memory_fraction`: how much of the device the segments may take. 1: no limit.
    double per_process_memory_fraction = 1;
    /// `graph_capture_record_stream_reuse:True`: in a capture, a block freed after use on other streams is lent again
    /// as soon as the captured graph orders what follows behind that use.
    bool graph_capture_record_stream_reuse = false;

    [[nodiscard]] constexpr bool limits_splitting() const {
        return max_split_size.count != std::numeric_limits<std::int64_t>::max();
    }
    [[nodiscard]] constexpr bool limits_memory() const { return per_process_memory_fraction < 1; }
    [[nodiscard]] constexpr bool collects_garbage() const {
        return limits_memory() && garbage_collection_threshold > 0;
    }

    friend bool operator==(const AllocatorConfig&, const AllocatorConfig&) = default;
};

struct ParsedAllocatorConfig {
    AllocatorConfig config;
    /// Keys that were read but say nothing about where device memory lies: locks, threads and pinned host memory.
    std::vector<std::string> without_effect;
};

struct AllocatorConfigError {
    std::size_t position = 0;  ///< of the offending text, from 0
    std::string message;
    std::string hint;
};

/// Reads `key:value,key:value`, spaces ignored, as PyTorch does; later keys win. Empty text is the default.
/// `backend:cudaMallocAsync` is known and refused, since CUDA then decides where memory lies.
std::variant<ParsedAllocatorConfig, AllocatorConfigError> parse_allocator_config(std::string_view text);

}  // namespace stowage::memory
