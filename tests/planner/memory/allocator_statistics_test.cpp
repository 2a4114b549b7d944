// The statistics of torch.cuda.memory_stats(): their names as PyTorch 2.11 listed them, their values by what
// alloc_found_block, free and free_block of c10/cuda/CUDACachingAllocator.cpp count.

#include "planner/memory/allocator_statistics.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "planner/memory/caching_allocator.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

struct CountingMachine {
    explicit CountingMachine(AllocatorConfig config = {}) : allocator(config, memory, events) {}
    VirtualDeviceMemory memory;
    TestEvents events;
    CachingAllocator allocator;
    [[nodiscard]] MemoryStatistics counted() const { return allocator.statistics(); }
};

TEST(AllocatorStatistics, TellWhatWasAskedForFromWhatWasHandedOut) {
    CountingMachine machine;
    const BlockHandle small = *machine.allocator.allocate(100_B, 0);
    machine.allocator.allocate(3_MiB, 0);
    const MemoryStatistics counted = machine.counted();
    EXPECT_EQ(counted.requested_bytes.small_pool.current, 100);
    EXPECT_EQ(counted.allocated_bytes.small_pool.current, 512);
    EXPECT_EQ(counted.requested_bytes.all.current, 100 + (3 << 20));
    EXPECT_EQ(counted.reserved_bytes.small_pool.current, 2 << 20);
    EXPECT_EQ(counted.reserved_bytes.large_pool.current, 20 << 20);
    EXPECT_EQ(counted.segment.all.current, 2);
    EXPECT_EQ(counted.inactive_split.all.current, 2);
    EXPECT_EQ(counted.inactive_split_bytes.large_pool.current, 17 << 20);
    EXPECT_EQ(counted.num_device_alloc, 2);
    EXPECT_EQ(counted.max_split_size, -1);
    machine.allocator.free(small);
    EXPECT_EQ(machine.counted().allocation.small_pool, (Statistic{0, 1, 1, 1}));
    EXPECT_EQ(machine.counted().requested_bytes.small_pool, (Statistic{0, 100, 100, 100}));
    // Free again, the block and the rest are one whole segment: no split block, and nothing was added for it.
    EXPECT_EQ(machine.counted().inactive_split.small_pool, (Statistic{0, 1, 1, 1}));
}

TEST(AllocatorStatistics, CountAHeldBlockAsActiveButNotAsAllocated) {
    CountingMachine machine;
    const BlockHandle block = *machine.allocator.allocate(32_MiB, 0);
    machine.events.make_busy(1);
    machine.allocator.record_stream(block, 1);
    machine.allocator.free(block);
    EXPECT_EQ(machine.counted().allocation.all, (Statistic{0, 1, 1, 1}));
    EXPECT_EQ(machine.counted().active.all, (Statistic{1, 1, 1, 0}));
    EXPECT_EQ(machine.counted().active_bytes.large_pool.current, 32 << 20);
    EXPECT_EQ(machine.counted().num_sync_all_streams, 0);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.counted().active.all, (Statistic{0, 1, 1, 1}));
    EXPECT_EQ(machine.counted().num_sync_all_streams, 1);
    EXPECT_EQ(machine.counted().num_device_free, 1);
    EXPECT_EQ(machine.counted().segment.all, (Statistic{0, 1, 1, 1}));
}

TEST(AllocatorStatistics, FindThePeakOfEachPoolAndOfBoth) {
    CountingMachine machine;
    machine.allocator.free(*machine.allocator.allocate(64_MiB, 0));
    const BlockHandle small = *machine.allocator.allocate(1_MiB, 0);
    machine.allocator.allocate(32_MiB, 0);
    machine.allocator.free(small);
    const MemoryStatistics counted = machine.counted();
    EXPECT_EQ(counted.allocated_bytes.large_pool.peak, 64 << 20);
    EXPECT_EQ(counted.allocated_bytes.small_pool.peak, 1 << 20);
    EXPECT_EQ(counted.allocated_bytes.all.peak, 64 << 20);  // 1 + 32 came later
    EXPECT_EQ(counted.allocation.all.peak, 2);
}

TEST(AllocatorStatistics, StartAnewAfterAReset) {
    CountingMachine machine;
    const BlockHandle block = *machine.allocator.allocate(2_MiB, 0);
    machine.allocator.free(*machine.allocator.allocate(4_MiB, 0));
    machine.allocator.reset_peaks();
    EXPECT_EQ(machine.counted().allocated_bytes.all.peak, 2 << 20);
    EXPECT_EQ(machine.counted().allocated_bytes.all.allocated, 6 << 20);
    machine.allocator.reset_accumulated();
    EXPECT_EQ(machine.counted().allocated_bytes.all, (Statistic{2 << 20, 2 << 20, 0, 0}));
    EXPECT_EQ(machine.counted().num_device_alloc, 0);
    machine.allocator.free(block);
    EXPECT_EQ(machine.counted().allocated_bytes.all, (Statistic{0, 2 << 20, 0, 2 << 20}));
    machine.allocator.check_invariants();
}

TEST(AllocatorStatistics, CountOversizeBlocksUnderASplitLimit) {
    CountingMachine machine({.max_split_size = 64_MiB});
    machine.allocator.free(*machine.allocator.allocate(100_MiB, 0));
    machine.allocator.allocate(32_MiB, 0);
    EXPECT_EQ(machine.counted().oversize_allocations, (Statistic{0, 1, 1, 1}));
    EXPECT_EQ(machine.counted().oversize_segments, (Statistic{1, 1, 1, 0}));
    EXPECT_EQ(machine.counted().max_split_size, 64 << 20);
}

TEST(AllocatorStatistics, HaveTheNamesOfMemoryStats) {
    CountingMachine machine;
    machine.allocator.allocate(2_MiB, 0);
    const auto listed = named_statistics(machine.counted());
    const std::map<std::string, std::int64_t> named(listed.begin(), listed.end());
    // Nine by pool: 3 pools x 4 each; two of oversize blocks x 4; six plain ones.
    EXPECT_EQ(listed.size(), 9U * 12U + 2U * 4U + 6U);
    EXPECT_TRUE(std::is_sorted(listed.begin(), listed.end()));
    EXPECT_EQ(named.at("allocated_bytes.all.current"), 2 << 20);
    EXPECT_EQ(named.at("reserved_bytes.large_pool.peak"), 20 << 20);
    EXPECT_EQ(named.at("inactive_split_bytes.all.allocated"), 18 << 20);
    EXPECT_EQ(named.at("requested_bytes.small_pool.freed"), 0);
    EXPECT_EQ(named.at("segment.all.current"), 1);
    EXPECT_EQ(named.at("oversize_segments.peak"), 0);
    EXPECT_EQ(named.at("num_alloc_retries"), 0);
    EXPECT_EQ(named.at("num_ooms"), 0);
    EXPECT_EQ(named.at("max_split_size"), -1);
}

}  // namespace
}  // namespace stowage::memory
