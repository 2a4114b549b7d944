// Private pools by the rules of PyTorch 2.11 (note "Interaction with CUDA graph capture" and the functions
// beginAllocateToPool, endAllocateToPool, releasePool, free and release_cached_blocks of
// c10/cuda/CUDACachingAllocator.cpp). Blocks of 32 MiB have a segment of their own.

#include <gtest/gtest.h>

#include <stdexcept>

#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/graph_registry.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

constexpr PoolId kPool{1};
constexpr PoolId kOther{2};
constexpr Stream kCapture = 9;

struct GraphMachine {
    explicit GraphMachine(AllocatorConfig config = {}, Bytes limit = 1_GiB)
        : memory(limit), allocator(config, memory, events) {}
    VirtualDeviceMemory memory;
    TestEvents events;
    CachingAllocator allocator;

    BlockHandle take(Bytes size, Stream stream = kCapture) { return *allocator.allocate(size, stream); }
    [[nodiscard]] BlockPlace place(BlockHandle block) const { return allocator.place(block); }
    [[nodiscard]] const AllocatorStats& stats() const { return allocator.stats(); }
    void free_after_use_on(BlockHandle block, Stream stream) {
        allocator.record_stream(block, stream);
        allocator.free(block);
    }
};

TEST(PrivatePool, LendsNothingToAndTakesNothingFromTheDefaultPool) {
    GraphMachine machine;
    const BlockHandle before = machine.take(32_MiB);
    const Address default_address = machine.place(before).address;
    machine.allocator.free(before);
    machine.allocator.begin_capture(kPool, kCapture);
    const BlockHandle inside = machine.take(32_MiB);
    EXPECT_NE(machine.place(inside).address, default_address);
    EXPECT_EQ(machine.place(inside).pool, kPool);
    machine.allocator.free(inside);
    machine.allocator.end_capture(kPool);
    const BlockHandle after = machine.take(32_MiB);
    EXPECT_EQ(machine.place(after).address, default_address);
    EXPECT_EQ(machine.place(after).pool, std::nullopt);
    EXPECT_EQ(machine.stats().reserved, 64_MiB);
    machine.allocator.check_invariants();
}

TEST(PrivatePool, IsSharedByTheCapturesThatNameIt) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    const BlockHandle first = machine.take(32_MiB);
    const Address address = machine.place(first).address;
    machine.allocator.free(first);
    machine.allocator.end_capture(kPool);
    machine.allocator.begin_capture(kOther, kCapture);
    EXPECT_NE(machine.place(machine.take(32_MiB)).address, address);
    machine.allocator.end_capture(kOther);
    machine.allocator.begin_capture(kPool, kCapture);
    EXPECT_EQ(machine.place(machine.take(32_MiB)).address, address);
    machine.allocator.end_capture(kPool);
    EXPECT_EQ(machine.allocator.graphs_of(kPool), 2);
    EXPECT_EQ(machine.allocator.graphs_of(kOther), 1);
}

TEST(PrivatePool, ServesTheStreamsOfTheCaptureEachItsOwnBlocks) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    machine.allocator.free(machine.take(32_MiB));
    machine.allocator.join_capture(kPool, 1);
    machine.allocator.join_capture(kPool, 1);  // once more changes nothing
    const BlockPlace joined = machine.place(machine.take(32_MiB, 1));
    EXPECT_EQ(joined.pool, kPool);
    EXPECT_EQ(joined.segment, 1U);
    EXPECT_EQ(machine.place(machine.take(32_MiB, 2)).pool, std::nullopt);
    machine.allocator.end_capture(kPool);
    EXPECT_EQ(machine.place(machine.take(32_MiB, 1)).pool, std::nullopt);
    machine.allocator.check_invariants();
}

TEST(PrivatePool, HasSmallAndLargeSegmentsOfItsOwn) {
    GraphMachine machine;
    machine.take(512_B);
    machine.allocator.begin_capture(kPool, kCapture);
    EXPECT_EQ(machine.place(machine.take(512_B)).segment, 1U);
    EXPECT_EQ(machine.place(machine.take(2_MiB)).segment, 2U);
    EXPECT_EQ(machine.place(machine.take(512_B)).offset, 512_B);
    EXPECT_EQ(machine.stats().reserved, 24_MiB);  // 2 + 2 + 20
}

TEST(PrivatePool, IsGivenBackOnceItsGraphsAreGoneAndNothingInItIsLive) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    const BlockHandle output = machine.take(32_MiB);
    machine.allocator.free(machine.take(64_MiB));
    machine.allocator.end_capture(kPool);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().reserved, 96_MiB);  // a graph lives
    machine.allocator.release_pool(kPool);
    EXPECT_EQ(machine.stats().reserved, 96_MiB);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().reserved, 32_MiB);  // the output lives
    EXPECT_THROW(machine.allocator.begin_capture(kPool, kCapture), std::logic_error);
    machine.allocator.free(output);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().reserved, 0_B);
    machine.allocator.begin_capture(kPool, kCapture);  // forgotten, so a new pool
    EXPECT_EQ(machine.allocator.graphs_of(kPool), 1);
    machine.allocator.check_invariants();
}

TEST(PrivatePool, KeepsItsSegmentsWhenTheDeviceIsFull) {
    GraphMachine machine({}, 100_MiB);
    machine.allocator.begin_capture(kPool, kCapture);
    machine.allocator.free(machine.take(64_MiB));
    machine.allocator.end_capture(kPool);
    EXPECT_FALSE(machine.allocator.allocate(64_MiB, 0).has_value());
    machine.allocator.release_pool(kPool);
    EXPECT_TRUE(machine.allocator.allocate(64_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().reserved, 64_MiB);
}

TEST(PrivatePool, GetsNoRoomFromTheDefaultPoolDuringACapture) {
    GraphMachine machine({}, 100_MiB);
    machine.allocator.free(machine.take(64_MiB, 0));
    machine.allocator.begin_capture(kPool, kCapture);
    EXPECT_FALSE(machine.allocator.allocate(64_MiB, kCapture).has_value());
    EXPECT_EQ(machine.stats().retries, 0);
    EXPECT_EQ(machine.stats().out_of_memory, 1);
    machine.allocator.empty_cache();  // nor when asked to
    EXPECT_EQ(machine.stats().reserved, 64_MiB);
    EXPECT_EQ(machine.events.waits(), 0);
    machine.allocator.end_capture(kPool);
    EXPECT_TRUE(machine.allocator.allocate(96_MiB, 0).has_value());
    EXPECT_EQ(machine.stats().retries, 1);
}

TEST(PrivatePool, TakesAnUnusedPoolBackEvenDuringAnotherCapture) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    machine.allocator.free(machine.take(64_MiB));
    machine.allocator.end_capture(kPool);
    machine.allocator.free(machine.take(32_MiB, 0));
    machine.allocator.release_pool(kPool);
    machine.allocator.begin_capture(kOther, kCapture);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().reserved, 32_MiB);
    EXPECT_EQ(machine.allocator.graphs_of(kPool), 0);
}

TEST(PrivatePool, RefusesWhatMakesNoSense) {
    GraphMachine machine;
    EXPECT_THROW(machine.allocator.end_capture(kPool), std::logic_error);
    EXPECT_THROW(machine.allocator.release_pool(kPool), std::logic_error);
    EXPECT_THROW(machine.allocator.join_capture(kPool, 1), std::logic_error);
    machine.allocator.begin_capture(kPool, kCapture);
    EXPECT_THROW(machine.allocator.begin_capture(kPool, 1), std::logic_error);
    EXPECT_THROW(machine.allocator.release_pool(kPool), std::logic_error);  // its only graph is being captured
    machine.allocator.begin_capture(kOther, 1);
    EXPECT_THROW(machine.allocator.join_capture(kPool, 1), std::logic_error);
}

TEST(DeferredBlock, ComesFreeAfterTheCaptureWithoutAnEventForUsesInIt) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    const BlockHandle block = machine.take(32_MiB);
    const Address address = machine.place(block).address;
    machine.events.make_busy(1);
    machine.free_after_use_on(block, 1);
    EXPECT_EQ(machine.stats().allocated, 0_B);
    EXPECT_EQ(machine.stats().active, 32_MiB);
    EXPECT_NE(machine.place(machine.take(32_MiB)).address, address);
    machine.allocator.check_invariants();
    machine.allocator.end_capture(kPool);
    machine.take(512_B, 0);  // stream 1 is busy, but the graph has ordered that use
    EXPECT_EQ(machine.stats().active, 32_MiB + 512_B);
    machine.allocator.check_invariants();
}

TEST(DeferredBlock, WaitsForUsesFromBeforeTheCapture) {
    GraphMachine machine;
    const BlockHandle block = machine.take(32_MiB, 0);
    machine.allocator.record_stream(block, 1);
    machine.allocator.begin_capture(kPool, kCapture);
    machine.events.make_busy(1);
    machine.events.make_busy(kCapture);
    machine.free_after_use_on(block, kCapture);
    machine.allocator.end_capture(kPool);
    machine.take(512_B, 0);
    EXPECT_EQ(machine.stats().active, 32_MiB + 512_B);  // stream 1 is busy
    machine.events.complete(EventHandle{0});            // the only event: none for the use in the capture
    machine.take(512_B, 0);
    EXPECT_EQ(machine.stats().active, 1_KiB);
}

TEST(DeferredBlock, ComesFreeWhenTheCacheIsEmptied) {
    GraphMachine machine;
    machine.allocator.begin_capture(kPool, kCapture);
    machine.free_after_use_on(machine.take(32_MiB), 1);
    machine.allocator.end_capture(kPool);
    machine.allocator.empty_cache();
    EXPECT_EQ(machine.stats().active, 0_B);
    EXPECT_EQ(machine.stats().reserved, 32_MiB);
}

TEST(HeldBlock, IsNotLookedAtDuringACapture) {
    GraphMachine machine;
    machine.events.make_busy(1);
    machine.free_after_use_on(machine.take(32_MiB, 0), 1);
    machine.allocator.begin_capture(kPool, kCapture);
    machine.events.complete(EventHandle{0});
    machine.take(32_MiB, 0);
    EXPECT_EQ(machine.stats().active, 64_MiB);
    machine.allocator.end_capture(kPool);
    machine.take(512_B, 0);
    EXPECT_EQ(machine.stats().active, 32_MiB + 512_B);
}

struct ReuseMachine {
    VirtualDeviceMemory memory;
    TestEvents order;
    CachingAllocator allocator{AllocatorConfig{.graph_capture_record_stream_reuse = true}, memory, order};
    BlockHandle block{};
    Address address = 0;

    /// Stream 1 has joined and used a block of the capture's stream, which has been freed.
    ReuseMachine() {
        allocator.begin_capture(kPool, kCapture);
        block = *allocator.allocate(32_MiB, kCapture);
        address = allocator.place(block).address;
        order.add_work(kCapture);
        order.wait_for(1, kCapture);
        allocator.join_capture(kPool, 1);
        order.add_work(1);
        allocator.record_stream(block, 1);
        allocator.free(block);
    }
    Address next(Stream stream = kCapture) { return allocator.place(*allocator.allocate(32_MiB, stream)).address; }
};

TEST(ReuseInACapture, WaitsUntilTheGraphOrdersWhatFollowsBehindTheUse) {
    ReuseMachine machine;
    EXPECT_NE(machine.next(), machine.address);
    machine.order.wait_for(kCapture, 1);
    EXPECT_EQ(machine.next(), machine.address);
    machine.allocator.check_invariants();
}

TEST(ReuseInACapture, LooksAtTheUsesUpToTheFreeAlone) {
    ReuseMachine machine;
    machine.order.wait_for(kCapture, 1);
    machine.order.add_work(1);  // after the free: not the block's
    EXPECT_EQ(machine.next(), machine.address);
}

TEST(ReuseInACapture, IsForTheStreamOfTheBlock) {
    ReuseMachine machine;
    machine.order.wait_for(kCapture, 1);
    EXPECT_NE(machine.next(1), machine.address);
    EXPECT_EQ(machine.allocator.stats().active, 64_MiB);  // the freed one is still held
}

TEST(ReuseInACapture, CannotJudgeAStreamOutsideTheCapture) {
    ReuseMachine machine;
    machine.order.wait_for(kCapture, 1);
    const BlockHandle block = *machine.allocator.allocate(48_MiB, kCapture);
    const Address address = machine.allocator.place(block).address;
    machine.allocator.record_stream(block, 2);
    machine.allocator.free(block);
    machine.order.wait_for(kCapture, 2);
    EXPECT_NE(machine.allocator.place(*machine.allocator.allocate(48_MiB, kCapture)).address, address);
}

TEST(GraphRegistry, MakesTheGeneratorsTensorsOnTheCapturesStreamInTheDefaultPool) {
    GraphMachine machine;
    GraphRegistry graphs;
    machine.allocator.free(machine.take(64_MiB, 0));
    ASSERT_TRUE(graphs.enter(machine.allocator, kPool, kCapture));
    EXPECT_EQ(machine.stats().allocated, 1_KiB);
    EXPECT_EQ(machine.stats().reserved, 2_MiB);  // the 64 MiB were cached
    EXPECT_TRUE(machine.allocator.capturing());
    graphs.leave(machine.allocator, kPool);
    EXPECT_EQ(machine.place(machine.take(512_B)).offset, 1_KiB);  // in their segment
    ASSERT_TRUE(graphs.enter(machine.allocator, kPool, kCapture));
    graphs.leave(machine.allocator, kPool);
    EXPECT_EQ(machine.stats().allocated, 1_KiB + 512_B);
    graphs.destroy(machine.allocator, kPool);
    EXPECT_EQ(machine.stats().allocated, 1_KiB + 512_B);
    graphs.destroy(machine.allocator, kPool);
    EXPECT_EQ(machine.stats().allocated, 512_B);
    EXPECT_THROW(graphs.destroy(machine.allocator, kPool), std::logic_error);
}

TEST(GraphRegistry, BeginsNoCaptureWithoutMemory) {
    GraphMachine machine({}, 32_MiB);
    GraphRegistry graphs;
    machine.take(32_MiB, 0);
    EXPECT_FALSE(graphs.enter(machine.allocator, kPool, kCapture));
    EXPECT_FALSE(machine.allocator.capturing());
}

}  // namespace
}  // namespace stowage::memory
