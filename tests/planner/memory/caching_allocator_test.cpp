#include "planner/memory/caching_allocator.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {

namespace {

using namespace types::literals;

struct Machine {
    explicit Machine(AllocatorConfig config = {}, Bytes limit = 1_GiB)
        : memory(limit), allocator(config, memory, events) {}
    VirtualDeviceMemory memory;
    TestEvents events;
    CachingAllocator allocator;
};

TEST(CachingAllocator, CountsTheSlackOfAnUnsplitBlockAsAllocated) {
    Machine machine;
    machine.allocator.allocate(1_MiB + 512_KiB, 0);
    const BlockPlace place = machine.allocator.place(*machine.allocator.allocate(18_MiB, 0));
    // 20 MiB - 1.5 MiB leaves 18.5 MiB; the rest of 0.5 MiB is not above 1 MiB, so all of it is handed out.
    EXPECT_EQ(place.size, 18_MiB + 512_KiB);
    EXPECT_EQ(place.offset, 1_MiB + 512_KiB);
    EXPECT_EQ(machine.allocator.stats().allocated, 20_MiB);
    EXPECT_EQ(machine.allocator.stats().reserved, 20_MiB);
}

TEST(CachingAllocator, HoldsABlockUntilEveryStreamThatUsedItIsThrough) {
    Machine machine;
    const BlockHandle block = *machine.allocator.allocate(32_MiB, 0);
    const Address address = machine.allocator.place(block).address;
    machine.events.make_busy(1);
    machine.events.make_busy(2);
    machine.allocator.record_stream(block, 1);
    machine.allocator.record_stream(block, 2);
    machine.allocator.free(block);  // events 0 (stream 1) and 1 (stream 2)
    machine.events.complete(EventHandle{0});
    const BlockHandle other = *machine.allocator.allocate(32_MiB, 0);
    EXPECT_NE(machine.allocator.place(other).address, address);
    EXPECT_EQ(machine.allocator.stats().active, 64_MiB);
    EXPECT_EQ(machine.allocator.stats().allocated, 32_MiB);
    machine.events.complete(EventHandle{1});
    EXPECT_EQ(machine.allocator.place(*machine.allocator.allocate(32_MiB, 0)).address, address);
}

TEST(CachingAllocator, LooksNoFurtherThanTheFirstIncompleteEventOfAStream) {
    Machine machine;
    const BlockHandle first = *machine.allocator.allocate(32_MiB, 0);
    const BlockHandle second = *machine.allocator.allocate(64_MiB, 0);
    machine.events.make_busy(1);
    for (const BlockHandle block : {first, second}) {
        machine.allocator.record_stream(block, 1);
        machine.allocator.free(block);
    }
    machine.events.complete(EventHandle{1});  // out of order: the second block stays behind the first
    machine.allocator.allocate(512_B, 0);
    EXPECT_EQ(machine.allocator.stats().active, 96_MiB + 512_B);
    machine.events.complete(EventHandle{0});
    machine.allocator.allocate(512_B, 0);
    EXPECT_EQ(machine.allocator.stats().active, 1_KiB);
}

TEST(CachingAllocator, IgnoresARecordOfTheBlocksOwnStream) {
    Machine machine;
    const BlockHandle block = *machine.allocator.allocate(1_MiB, 3);
    machine.allocator.record_stream(block, 3);
    machine.events.make_busy(3);
    machine.allocator.free(block);
    EXPECT_EQ(machine.allocator.stats().active, 0_B);
}

TEST(CachingAllocator, GivesTheCacheBackAndTriesAgainBeforeItFails) {
    Machine machine({}, 100_MiB);
    const BlockHandle held = *machine.allocator.allocate(40_MiB, 0);
    const BlockHandle cached = *machine.allocator.allocate(40_MiB, 1);
    machine.events.make_busy(1);
    machine.allocator.record_stream(held, 1);
    machine.allocator.free(held);
    machine.allocator.free(cached);
    // 20 MiB are left; the held and the cached segment are given back once the device is idle.
    EXPECT_TRUE(machine.allocator.allocate(90_MiB, 0).has_value());
    EXPECT_EQ(machine.events.waits(), 1);
    EXPECT_EQ(machine.allocator.stats().retries, 1);
    EXPECT_EQ(machine.allocator.stats().reserved, 90_MiB);
    EXPECT_FALSE(machine.allocator.allocate(12_MiB, 0).has_value());
    EXPECT_EQ(machine.allocator.stats().retries, 2);
    EXPECT_EQ(machine.allocator.stats().out_of_memory, 1);
    EXPECT_TRUE(machine.allocator.allocate(10_MiB, 0).has_value());
    EXPECT_NO_THROW(machine.allocator.check_invariants());
}

TEST(CachingAllocator, CannotGiveBackASegmentThatIsPartlyInUse) {
    Machine machine({}, 40_MiB);
    machine.allocator.allocate(2_MiB, 0);
    // 18 MiB of the first segment are free but on stream 0; stream 1 gets the other 20 MiB and no more.
    EXPECT_TRUE(machine.allocator.allocate(20_MiB, 1).has_value());
    EXPECT_FALSE(machine.allocator.allocate(18_MiB, 1).has_value());
    EXPECT_TRUE(machine.allocator.allocate(18_MiB, 0).has_value());
}

TEST(CachingAllocator, GivesOversizeBlocksBackFirstUnderASplitLimit) {
    Machine machine({.max_split_size = 64_MiB}, 300_MiB);
    const BlockHandle large = *machine.allocator.allocate(100_MiB, 0);
    const BlockHandle larger = *machine.allocator.allocate(120_MiB, 0);
    const BlockHandle small = *machine.allocator.allocate(40_MiB, 0);
    for (const BlockHandle block : {large, larger, small}) machine.allocator.free(block);
    // 150 MiB: no block is large enough, so 120 and then 100 go, which makes room; the 40 MiB stay cached.
    EXPECT_TRUE(machine.allocator.allocate(150_MiB, 0).has_value());
    EXPECT_EQ(machine.allocator.stats().reserved, 190_MiB);
    EXPECT_EQ(machine.allocator.stats().retries, 0);
}

TEST(CachingAllocator, RefusesADoubleFree) {
    Machine machine;
    const BlockHandle block = *machine.allocator.allocate(1_MiB, 0);
    machine.allocator.free(block);
    EXPECT_THROW(machine.allocator.free(block), std::logic_error);
    EXPECT_THROW(machine.allocator.record_stream(block, 1), std::logic_error);
    EXPECT_THROW(machine.allocator.allocate(0_B, 0), std::logic_error);
}

TEST(CachingAllocator, StartsOverAfterAReset) {
    Machine machine;
    const Address before = machine.allocator.place(*machine.allocator.allocate(5_MiB, 0)).address;
    machine.allocator.allocate(64_MiB, 1);
    machine.allocator.reset();
    EXPECT_EQ(machine.memory.reserved(), 0_B);
    EXPECT_EQ(machine.allocator.stats(), AllocatorStats{});
    const BlockPlace after = machine.allocator.place(*machine.allocator.allocate(5_MiB, 0));
    EXPECT_EQ(after.address, before);
    EXPECT_EQ(after.segment, 0U);
}

TEST(CachingAllocator, GoesItsOwnWayAsACopy) {
    Machine machine;
    machine.allocator.allocate(4_MiB, 0);
    VirtualDeviceMemory memory = machine.memory;
    TestEvents events = machine.events;
    CachingAllocator copy = machine.allocator;
    copy.rebind(memory, events);
    const Address there = copy.place(*copy.allocate(100_MiB, 0)).address;
    EXPECT_EQ(machine.allocator.stats().reserved, 20_MiB);
    EXPECT_EQ(machine.memory.reserved(), 20_MiB);
    EXPECT_EQ(machine.allocator.place(*machine.allocator.allocate(100_MiB, 0)).address, there);
}

}  // namespace
}  // namespace stowage::memory
