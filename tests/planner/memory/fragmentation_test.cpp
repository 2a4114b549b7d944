#include "planner/memory/fragmentation.hpp"

#include <gtest/gtest.h>

#include "planner/memory/caching_allocator.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

/// Of 200 MiB, stream 0 has a segment of 128 with 64 in use between 32 free ones on both sides, a private pool has 32
/// free, and stream 1 a segment of 20 with 2 that wait for stream 2.
struct Fragmented {
    VirtualDeviceMemory memory{200_MiB};
    TestEvents events;
    CachingAllocator allocator{AllocatorConfig{}, memory, events};

    Fragmented() {
        const BlockHandle whole = *allocator.allocate(128_MiB, 0);
        allocator.free(whole);
        const BlockHandle front = *allocator.allocate(32_MiB, 0);
        allocator.allocate(64_MiB, 0);
        allocator.free(front);
        allocator.begin_capture(PoolId{7}, 9);
        allocator.free(*allocator.allocate(32_MiB, 9));
        allocator.end_capture(PoolId{7});
        const BlockHandle held = *allocator.allocate(2_MiB, 1);
        events.make_busy(2);
        allocator.record_stream(held, 2);
        allocator.free(held);
    }
};

TEST(Fragmentation, SaysWhereTheMemoryIsAndWhyItCannotServe) {
    const Fragmented machine;
    const FragmentationReport report = machine.allocator.fragmentation(40_MiB, 0);
    EXPECT_EQ(report.block, 40_MiB);
    EXPECT_EQ(report.growth, 40_MiB);
    EXPECT_EQ(report.limit, 200_MiB);
    EXPECT_EQ(report.reserved, 180_MiB);  // 128 + 32 + 20
    EXPECT_EQ(report.allocated, 64_MiB);
    EXPECT_EQ(report.held, 2_MiB);
    EXPECT_EQ(report.free, 114_MiB);         // 32 + 32, 32, 18
    EXPECT_EQ(report.largest_free, 32_MiB);  // 64 are free, but in two pieces
    EXPECT_EQ(report.free_beside, 50_MiB);
    EXPECT_EQ(report.reserved_by_private_pools, 32_MiB);
    EXPECT_EQ(report.free_in_private_pools, 32_MiB);
    const std::vector<CacheReport> caches = {
        {std::nullopt, 0, PoolClass::large, Obstacle::too_small, 64_MiB, 0_B, 64_MiB, 32_MiB, 2},
        {PoolId{7}, 9, PoolClass::large, Obstacle::other_pool, 0_B, 0_B, 32_MiB, 32_MiB, 1},
        {std::nullopt, 1, PoolClass::large, Obstacle::other_stream, 0_B, 2_MiB, 18_MiB, 18_MiB, 1},
    };
    EXPECT_EQ(report.caches, caches);
}

TEST(Fragmentation, TellsWhatCouldServe) {
    const Fragmented machine;
    EXPECT_EQ(machine.allocator.fragmentation(32_MiB, 0).caches.front().obstacle, Obstacle::none);
    EXPECT_EQ(machine.allocator.fragmentation(512_B, 0).caches.front().obstacle, Obstacle::other_class);
    EXPECT_EQ(machine.allocator.fragmentation(512_B, 0).growth, 2_MiB);
}

TEST(Fragmentation, LooksFromThePoolOfACapture) {
    Fragmented machine;
    machine.allocator.begin_capture(PoolId{7}, 9);
    const FragmentationReport report = machine.allocator.fragmentation(40_MiB, 9);
    EXPECT_EQ(report.pool, PoolId{7});
    EXPECT_TRUE(report.capturing);
    EXPECT_EQ(report.largest_free, 32_MiB);
    EXPECT_EQ(report.caches.front().obstacle, Obstacle::other_pool);
    EXPECT_EQ(report.caches[1].obstacle, Obstacle::too_small);
}

TEST(Fragmentation, NamesASplitLimitThatKeepsBlocksWhole) {
    VirtualDeviceMemory memory;
    TestEvents events;
    CachingAllocator allocator(AllocatorConfig{.max_split_size = 64_MiB}, memory, events);
    allocator.free(*allocator.allocate(100_MiB, 0));
    EXPECT_EQ(allocator.fragmentation(40_MiB, 0).caches.front().obstacle, Obstacle::kept_whole);
    EXPECT_EQ(allocator.fragmentation(90_MiB, 0).caches.front().obstacle, Obstacle::none);
}

TEST(Fragmentation, CountsTheAllowedPartOfTheDeviceAsTheLimit) {
    VirtualDeviceMemory memory(200_MiB);
    TestEvents events;
    CachingAllocator allocator(AllocatorConfig{.per_process_memory_fraction = 0.5}, memory, events);
    EXPECT_EQ(allocator.fragmentation(2_MiB, 0).limit, 100_MiB);
}

TEST(Fragmentation, IsExplainedInWords) {
    Fragmented machine;
    EXPECT_EQ(
        explain(machine.allocator.fragmentation(40_MiB, 0)),
        "40.00 MiB on stream 0 found no memory: 40.00 MiB more would have to be reserved beside 180.00 MiB of "
        "200.00 MiB. Of what is reserved, 64.00 MiB is in use, 2.00 MiB waits for other streams and 114.00 MiB is "
        "free: 64.00 MiB where the request looks, the largest block 32.00 MiB, and 50.00 MiB of other streams, "
        "classes or pools. Private pools of graphs have 32.00 MiB, 32.00 MiB of it free. What is free lies in "
        "pieces between live blocks: expandable segments would join them.");
}

}  // namespace
}  // namespace stowage::memory
