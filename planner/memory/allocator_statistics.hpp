#pragma once

// The statistics of the caching allocator under the names that torch.cuda.memory_stats() gives them.
//
// Allocating and freeing only add to sums over time. What there is at a moment is the difference of two sums. Peaks are
// looked at only when one may have been passed: each time, how far every quantity is below its peak is kept, and until
// that much more has been added than taken away, none has.
//
// Source: PyTorch 2.11, c10/core/CachingDeviceAllocator.h and c10/cuda/CUDACachingAllocator.cpp (what each counts),
// torch/cuda/memory.py (names).
// Tested by: tests/planner/memory/allocator_statistics_test.cpp.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/memory/size_rules.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

/// One quantity: now, its highest, and all that was ever added and taken away since the last reset of each.
struct Statistic {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::int64_t allocated = 0;
    std::int64_t freed = 0;

    void change(std::int64_t by);

    friend bool operator==(const Statistic&, const Statistic&) = default;
};

struct StatisticByPool {
    Statistic all, large_pool, small_pool;

    [[nodiscard]] Statistic& of(PoolClass pool) { return pool == PoolClass::small ? small_pool : large_pool; }
    void change(PoolClass pool, std::int64_t by);

    friend bool operator==(const StatisticByPool&, const StatisticByPool&) = default;
};

/// What torch.cuda.memory_stats() says, in blocks, segments and bytes.
struct MemoryStatistics {
    StatisticByPool allocation, allocated_bytes;           ///< blocks in use
    StatisticByPool active, active_bytes;                  ///< and those freed but held for other streams
    StatisticByPool requested_bytes;                       ///< of those, as asked for before rounding
    StatisticByPool inactive_split, inactive_split_bytes;  ///< free blocks that share their segment
    StatisticByPool segment, reserved_bytes;
    Statistic oversize_allocations, oversize_segments;  ///< of max_split_size and above
    std::int64_t num_alloc_retries = 0;
    std::int64_t num_ooms = 0;
    std::int64_t num_sync_all_streams = 0;
    std::int64_t num_device_alloc = 0;
    std::int64_t num_device_free = 0;
    std::int64_t max_split_size = -1;  ///< bytes; -1: no limit

    friend bool operator==(const MemoryStatistics&, const MemoryStatistics&) = default;
};

/// Name and value as torch.cuda.memory_stats() lists them, in its order: by name.
std::vector<std::pair<std::string, std::int64_t>> named_statistics(const MemoryStatistics& statistics);

/// What a CachingAllocator counts with.
class StatisticsCounter {
public:
    void allocate(PoolClass pool, std::int64_t bytes, std::int64_t requested) {
        Sums& sums = sums_[static_cast<std::size_t>(pool)];
        ++sums.added[kBlocks];
        sums.added[kBytes] += bytes;
        sums.added[kRequested] += requested;
        --sums.blocks_to_a_peak;
        sums.bytes_to_a_peak -= bytes;
        if ((sums.blocks_to_a_peak | sums.bytes_to_a_peak) < 0) look_at_peaks();
    }
    /// No longer in use, nor held.
    void release(PoolClass pool, std::int64_t bytes, std::int64_t requested) {
        Sums& sums = sums_[static_cast<std::size_t>(pool)];
        ++sums.released[kBlocks];
        sums.released[kBytes] += bytes;
        sums.released[kRequested] += requested;
        ++sums.blocks_to_a_peak;
        sums.bytes_to_a_peak += requested;  // never more than the bytes: the requested ones have a peak too
    }
    /// No longer in use but held from now on, until it is released.
    void hold(PoolClass pool, std::int64_t bytes) {
        Sums& sums = sums_[static_cast<std::size_t>(pool)];
        ++sums.held_blocks;
        sums.held_bytes += bytes;
    }
    /// No longer held; what is released follows. It was no longer in use before, so that quantity gets no further from
    /// its peak.
    void end_hold(PoolClass pool, std::int64_t bytes, std::int64_t requested) {
        Sums& sums = sums_[static_cast<std::size_t>(pool)];
        --sums.held_blocks;
        sums.held_bytes -= bytes;
        --sums.blocks_to_a_peak;
        sums.bytes_to_a_peak -= requested;
    }
    /// Free blocks that share their segment, more or less of them.
    void change_split(PoolClass pool, std::int64_t blocks, std::int64_t bytes) {
        Sums& sums = sums_[static_cast<std::size_t>(pool)];
        sums.split[kBlocks] += blocks;
        sums.split[kBytes] += bytes;
        sums.split_added[kBlocks] += blocks > 0 ? blocks : 0;
        sums.split_added[kBytes] += bytes > 0 ? bytes : 0;
        sums.split_to_a_peak[kBlocks] -= blocks;
        sums.split_to_a_peak[kBytes] -= bytes;
        if ((sums.split_to_a_peak[kBlocks] | sums.split_to_a_peak[kBytes]) < 0) look_at_peaks();
    }
    void change_segments(PoolClass pool, std::int64_t segments) { rest_.segment.change(pool, segments); }
    void change_reserved(PoolClass pool, std::int64_t bytes) { rest_.reserved_bytes.change(pool, bytes); }
    void change_oversize_blocks(std::int64_t by) { rest_.oversize_allocations.change(by); }
    void change_oversize_segments(std::int64_t by) { rest_.oversize_segments.change(by); }

    void reset_peaks();
    /// Sums over time start from here, those of a Statistic's `allocated` and `freed`.
    void reset_accumulated();
    [[nodiscard]] MemoryStatistics statistics() const;

private:
    enum Quantity : std::size_t { kBlocks, kBytes, kRequested, kQuantities };
    struct Sums {
        std::array<std::int64_t, kQuantities> added{};
        std::array<std::int64_t, kQuantities> released{};
        std::int64_t held_blocks = 0;
        std::int64_t held_bytes = 0;
        std::int64_t blocks_to_a_peak = 0;  ///< may be added before any peak of the class or of both is passed
        std::int64_t bytes_to_a_peak = 0;
        std::array<std::int64_t, 2> split{};  ///< blocks and bytes, as the next two
        std::array<std::int64_t, 2> split_added{};
        std::array<std::int64_t, 2> split_to_a_peak{};
    };
    /// In the order of MemoryStatistics, from allocation to inactive_split_bytes.
    using Levels = std::array<std::int64_t, 7>;
    static Levels levels_of(const Sums& sums);
    void look_at_peaks();
    [[nodiscard]] Sums total() const;

    std::array<Sums, 2> sums_;       ///< by pool class
    std::array<Sums, 3> base_;       ///< small, large, all: the sums at the last reset_accumulated
    std::array<Levels, 3> peaks_{};  ///< small, large, all
    MemoryStatistics rest_;          ///< what changes seldom
};

}  // namespace stowage::memory
