// The memory fraction and garbage collection by the rules of PyTorch 2.11 (alloc_block, garbage_collect_cached_blocks
// and setMemoryFraction of c10/cuda/CUDACachingAllocator.cpp).

#include <gtest/gtest.h>

#include <stdexcept>

#include "planner/memory/caching_allocator.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

struct LimitedMachine {
    explicit LimitedMachine(const AllocatorConfig& config) : allocator(config, memory, events) {}
    VirtualDeviceMemory memory{400_MiB};
    TestEvents events;
    CachingAllocator allocator;

    BlockHandle take(Bytes size, Stream stream = 0) { return *allocator.allocate(size, stream); }
    [[nodiscard]] const AllocatorStats& stats() const { return allocator.stats(); }
};

TEST(MemoryFraction, LimitsWhatIsReservedNotWhatIsAllocated) {
    LimitedMachine machine({.per_process_memory_fraction = 0.25});  // 100 MiB
    machine.allocator.free(machine.take(64_MiB, 1));
    // 64 + 40 is too much, though the device has room; the cached 64 are given back.
    EXPECT_TRUE(machine.allocator.allocate(40_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().retries, 1);
    EXPECT_EQ(machine.stats().reserved, 40_MiB);
    EXPECT_FALSE(machine.allocator.allocate(62_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().out_of_memory, 1);
    EXPECT_TRUE(machine.allocator.allocate(60_MiB, 0).has_value());
}

TEST(MemoryFraction, HoldsAWholeSegmentAgainstTheLimit) {
    LimitedMachine machine({.per_process_memory_fraction = 0.04});   // 16 MiB
    EXPECT_FALSE(machine.allocator.allocate(2_MiB, 0).has_value());  // 20 MiB would be reserved
    EXPECT_TRUE(machine.allocator.allocate(16_MiB, 0).has_value());
}

TEST(MemoryFraction, LetsAnExpandableSegmentGoAGranuleBeyond) {
    LimitedMachine machine({.expandable_segments = true, .per_process_memory_fraction = 0.25});
    machine.take(70_MiB);  // 80 are mapped
    // 80 + 12 is within 100; 10 are left, and for the missing 2 another 20 are mapped.
    EXPECT_TRUE(machine.allocator.allocate(12_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().reserved, 100_MiB);
    machine.take(10_MiB);
    EXPECT_FALSE(machine.allocator.allocate(10_MiB, 0).has_value());
}

TEST(MemoryFraction, OfOneIsNoLimit) {
    LimitedMachine machine({});
    EXPECT_TRUE(machine.allocator.allocate(400_MiB, 0).has_value());
}

/// 200 MiB allowed, collected above 120. Free are 20 MiB on stream 1 and on stream 0, freed in this order with a
/// request of stream 1 between the frees, 40, 48 and 56 MiB.
struct Garbage : LimitedMachine {
    Garbage() : LimitedMachine({.garbage_collection_threshold = 0.6, .per_process_memory_fraction = 0.5}) {
        search();
        const BlockHandle first = take(40_MiB);
        const BlockHandle second = take(48_MiB);
        const BlockHandle third = take(56_MiB);
        allocator.free(first);
        search();
        allocator.free(second);
        search();
        allocator.free(third);
    }
    void search() { allocator.free(take(20_MiB, 1)); }
};

TEST(GarbageCollection, GivesSegmentsBackThatAreOlderThanTheAverage) {
    Garbage machine;
    // The request for 32 MiB on stream 2 is the seventh. Ages: of 40 MiB, free since the fourth, 3; of 48, 2; of 56 and
    // of 20, 1; the average is 7 / 4. 164 - 120 = 44 MiB are to go: the two that are older do.
    machine.take(32_MiB, 2);
    EXPECT_EQ(machine.stats().reserved, 108_MiB);  // 20 + 56 + 32
    EXPECT_EQ(machine.stats().device_frees, 2);
    EXPECT_EQ(machine.stats().retries, 0);
    EXPECT_EQ(machine.events.waits(), 1);
}

TEST(GarbageCollection, LooksOnlyWhenNoCachedBlockServes) {
    Garbage machine;
    machine.take(56_MiB);
    EXPECT_EQ(machine.stats().device_frees, 0);
}

TEST(GarbageCollection, LeavesWhatIsBelowTheThreshold) {
    LimitedMachine machine({.garbage_collection_threshold = 0.5, .per_process_memory_fraction = 0.5});
    machine.allocator.free(machine.take(40_MiB));
    machine.allocator.free(machine.take(60_MiB, 1));
    machine.take(80_MiB, 2);  // 100 MiB were reserved, not above
    EXPECT_EQ(machine.stats().device_frees, 0);
    machine.take(20_MiB, 2);  // 180 were: 80 are to go. Both are of one age, the average, and go.
    EXPECT_EQ(machine.stats().reserved, 100_MiB);
}

TEST(GarbageCollection, LeavesSmallSegmentsAndThoseOfPrivatePools) {
    LimitedMachine machine({.garbage_collection_threshold = 0.5, .per_process_memory_fraction = 0.5});
    machine.allocator.free(machine.take(512_B));
    machine.allocator.begin_capture(PoolId{1}, 9);
    machine.allocator.free(machine.take(110_MiB, 9));
    machine.allocator.end_capture(PoolId{1});
    machine.take(20_MiB, 0);
    EXPECT_EQ(machine.stats().reserved, 132_MiB);
    EXPECT_EQ(machine.stats().device_frees, 0);
}

TEST(GarbageCollection, NeedsAMemoryFraction) {
    LimitedMachine machine({.garbage_collection_threshold = 0.1});
    machine.allocator.free(machine.take(300_MiB));
    machine.take(64_MiB, 1);
    EXPECT_EQ(machine.stats().reserved, 364_MiB);
}

TEST(SplitLimit, WorksTogetherWithExpandableSegments) {
    LimitedMachine machine({.max_split_size = 64_MiB, .expandable_segments = true});
    const BlockHandle large = machine.take(100_MiB);
    machine.take(20_MiB);  // in the same 120 MiB
    machine.allocator.free(large);
    // The free block of 100 MiB is not lent to a request below the limit, so the segment grows by 40.
    EXPECT_EQ(machine.allocator.place(machine.take(40_MiB)).offset, 120_MiB);
    // A request above the limit may have it, and what is left is cut off, as always in expandable segments.
    EXPECT_EQ(machine.allocator.place(machine.take(90_MiB)).size, 90_MiB);
    EXPECT_EQ(machine.allocator.statistics().oversize_allocations.current, 1);
    EXPECT_EQ(machine.allocator.statistics().oversize_segments.peak, 0);
    machine.allocator.check_invariants();
}

}  // namespace
}  // namespace stowage::memory
