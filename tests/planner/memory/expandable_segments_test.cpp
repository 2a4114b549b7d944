// Expandable segments by the rules of PyTorch 2.11 (note "Expandable Segments" and the functions find_expandable_block,
// map_block, unmap_block and get_free_block of c10/cuda/CUDACachingAllocator.cpp). The large pool is mapped in 20 MiB.

#include <gtest/gtest.h>

#include <stdexcept>

#include "planner/memory/caching_allocator.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

struct ExpandableMachine {
    explicit ExpandableMachine(Bytes limit = 1_GiB) : memory(limit) {}
    VirtualDeviceMemory memory;
    TestEvents events;
    CachingAllocator allocator{AllocatorConfig{.expandable_segments = true}, memory, events};

    BlockHandle take(Bytes size, Stream stream = 0) { return *allocator.allocate(size, stream); }
    [[nodiscard]] BlockPlace place(BlockHandle block) const { return allocator.place(block); }
    [[nodiscard]] const AllocatorStats& stats() const { return allocator.stats(); }
};

/// 0 to 30, 30 to 60 and 60 to 90 MiB; mapped are 40, then 20 more behind the 10 left, then 40: 100 MiB.
struct ThreeBlocks : ExpandableMachine {
    using ExpandableMachine::ExpandableMachine;
    BlockHandle first = take(30_MiB);
    BlockHandle second = take(30_MiB);
    BlockHandle third = take(30_MiB);
};

TEST(ExpandableSegments, GrowBehindWhatIsFreeAtTheEnd) {
    ExpandableMachine machine;
    EXPECT_EQ(machine.allocator.growth(64_MiB, 0), 80_MiB);
    machine.take(64_MiB);
    // 16 of 80 MiB are left; the missing 48 MiB are three granules.
    EXPECT_EQ(machine.allocator.growth(64_MiB, 0), 60_MiB);
    const BlockPlace place = machine.place(machine.take(64_MiB));
    EXPECT_EQ(place.offset, 64_MiB);
    EXPECT_EQ(place.segment_size, 140_MiB);
    EXPECT_EQ(machine.stats().reserved, 140_MiB);
    EXPECT_EQ(machine.memory.reserved(), 140_MiB);
    EXPECT_EQ(machine.stats().device_allocations, 2);
    EXPECT_EQ(machine.stats().segments, 0);
    EXPECT_EQ(machine.stats().inactive_split, 0_B);
}

TEST(ExpandableSegments, BelongToOneStreamAndPool) {
    ExpandableMachine machine;
    EXPECT_EQ(machine.place(machine.take(2_MiB, 0)).segment, 0U);
    EXPECT_EQ(machine.place(machine.take(1_MiB, 0)).segment, 1U);
    EXPECT_EQ(machine.place(machine.take(2_MiB, 1)).segment, 2U);
    EXPECT_EQ(machine.place(machine.take(17_MiB, 0)).segment, 0U);
    EXPECT_EQ(machine.stats().reserved, 42_MiB);  // 20 + 2 + 20
}

TEST(ExpandableSegments, HandOutNoSlack) {
    ExpandableMachine machine;
    machine.take(19_MiB + 512_KiB);  // of 20 MiB: without expandable segments the rest would go with it
    EXPECT_EQ(machine.stats().allocated, 19_MiB + 512_KiB);
    EXPECT_EQ(machine.place(machine.take(2_MiB)).offset, 19_MiB + 512_KiB);
}

TEST(ExpandableSegments, ServeFromBlocksThatCannotGrowFirst) {
    ExpandableMachine machine;
    const BlockHandle front = machine.take(30_MiB);
    machine.take(5_MiB);
    machine.allocator.free(front);
    // Free are 0 to 30 MiB and 35 to 40 MiB. The second fits 4 MiB better but counts with all that can be mapped.
    EXPECT_EQ(machine.place(machine.take(4_MiB)).offset, 0_B);
}

TEST(ExpandableSegments, GiveWholeGranulesBackAndFillTheHoleBeforeTheyGrow) {
    ThreeBlocks machine;
    machine.allocator.free(machine.second);
    machine.allocator.empty_cache();
    // Free were 30 to 60 and 90 to 100 MiB; only 40 to 60 MiB are a whole granule.
    EXPECT_EQ(machine.stats().reserved, 80_MiB);
    EXPECT_EQ(machine.memory.reserved(), 80_MiB);
    EXPECT_EQ(machine.events.waits(), 1);
    EXPECT_EQ(machine.place(machine.first).segment_size, 40_MiB);
    EXPECT_EQ(machine.place(machine.third).offset, 0_B);  // what is mapped around it begins at 60 MiB
    EXPECT_EQ(machine.place(machine.third).segment_size, 40_MiB);
    // 15 MiB fit neither free block of 10 MiB; from 30 MiB on there is room with the hole behind.
    const BlockPlace place = machine.place(machine.take(15_MiB));
    EXPECT_EQ(place.offset, 30_MiB);
    EXPECT_EQ(place.segment_size, 100_MiB);
    EXPECT_EQ(machine.stats().reserved, 100_MiB);
    machine.allocator.check_invariants();
}

TEST(ExpandableSegments, AreForgottenOnceNothingOfThemIsMapped) {
    ExpandableMachine machine;
    machine.allocator.free(machine.take(30_MiB));
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().reserved, 0_B);
    EXPECT_EQ(machine.place(machine.take(30_MiB)).segment, 1U);
    machine.allocator.empty_cache();  // nothing to unmap: no wait
    EXPECT_EQ(machine.events.waits(), 1);
}

TEST(ExpandableSegments, TakeTheFreeGranulesOfOtherStreamsWhenTheDeviceIsFull) {
    ExpandableMachine machine(100_MiB);
    machine.take(40_MiB, 0);
    machine.allocator.free(machine.take(40_MiB, 1));
    // 60 MiB are to be mapped where 20 are left; stream 1 gives 40 back.
    EXPECT_EQ(machine.place(machine.take(50_MiB, 0)).offset, 40_MiB);
    EXPECT_EQ(machine.stats().retries, 1);
    EXPECT_EQ(machine.stats().reserved, 100_MiB);
    EXPECT_EQ(machine.events.waits(), 1);
    EXPECT_FALSE(machine.allocator.allocate(512_B, 0).has_value());  // the small pool has no page
    EXPECT_EQ(machine.stats().out_of_memory, 1);
    EXPECT_TRUE(machine.allocator.allocate(10_MiB, 0).has_value());  // 90 to 100 MiB
}

TEST(ExpandableSegments, MapHoleByHoleUntilTheDeviceIsFull) {
    ThreeBlocks machine(120_MiB);
    machine.allocator.free(machine.second);
    machine.allocator.empty_cache();
    machine.allocator.free(machine.third);
    EXPECT_EQ(machine.stats().device_allocations, 3);
    // 100 MiB from 30 MiB on: 10 free, a hole of 20, 40 free, and 30 of the tail, two granules.
    EXPECT_EQ(machine.allocator.growth(100_MiB, 0), 60_MiB);
    // 80 are mapped, so the hole is filled and the tail is refused. Then 40 to 100 MiB are given back, of which 100 MiB
    // would have to be mapped again beside the 40 in use.
    EXPECT_FALSE(machine.allocator.allocate(100_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().device_allocations, 4);
    EXPECT_EQ(machine.stats().reserved, 40_MiB);
    machine.allocator.check_invariants();
}

// What graphs take of the driver may leave the allocator nothing.
TEST(ExpandableSegments, RefuseEverySizeOnADeviceThatHasNoByteLeft) {
    for (const Bytes size : {1_B, 1_MiB, 30_MiB, 4_GiB}) {
        ExpandableMachine machine(0_B);
        EXPECT_FALSE(machine.allocator.allocate(size, 0).has_value());
        EXPECT_EQ(machine.stats().reserved, 0_B);
        machine.allocator.check_invariants();
    }
}

TEST(ExpandableSegments, StartOverAfterAReset) {
    ThreeBlocks machine;
    machine.allocator.free(machine.second);
    machine.allocator.empty_cache();
    machine.allocator.reset();
    EXPECT_EQ(machine.memory.reserved(), 0_B);
    EXPECT_EQ(machine.stats(), AllocatorStats{});
    const BlockPlace place = machine.place(machine.take(30_MiB));
    EXPECT_EQ(place.segment, 0U);
    EXPECT_EQ(place.segment_size, 40_MiB);
    machine.allocator.check_invariants();
}

}  // namespace
}  // namespace stowage::memory
