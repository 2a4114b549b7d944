#include "planner/memory/pinned_blocks.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

constexpr Stream kOut = 1;
constexpr Stream kBack = 2;

TEST(PinnedBlocks, RoundsToAPowerOfTwoAndReusesWhatCameFreeLast) {
    PinnedBlocks blocks;
    const PinnedBlock a = blocks.allocate(24_MiB);
    const PinnedBlock b = blocks.allocate(17_MiB);
    EXPECT_EQ(blocks.size(a), 32_MiB);
    EXPECT_EQ(blocks.size(b), 32_MiB);
    EXPECT_EQ(blocks.size(blocks.allocate(16_MiB)), 16_MiB);
    blocks.free(a);
    blocks.free(b);
    EXPECT_EQ(blocks.allocate(30_MiB), b);
    EXPECT_EQ(blocks.allocate(30_MiB), a);
    EXPECT_EQ(blocks.stats().reserved, 80_MiB);
    EXPECT_EQ(blocks.stats().system_allocations, 3);
}

TEST(PinnedBlocks, ServeNoSizeFromTheBlocksOfAnother) {
    PinnedBlocks blocks;
    blocks.free(blocks.allocate(64_MiB));
    EXPECT_EQ(blocks.size(blocks.allocate(32_MiB)), 32_MiB);
    EXPECT_EQ(blocks.stats().reserved, 96_MiB);
}

TEST(PinnedBlocks, ComeBackOnlyWhenTheCopiesThatUsedThemAreDone) {
    TestEvents events;
    PinnedBlocks blocks({}, &events);
    events.make_busy(kBack);
    const PinnedBlock a = blocks.allocate(32_MiB);
    blocks.record_stream(a, kOut);   // done by the time of the free
    blocks.record_stream(a, kBack);  // not done
    blocks.free(a);
    EXPECT_EQ(blocks.stats().active, 32_MiB);
    EXPECT_NE(blocks.allocate(32_MiB), a);
    EXPECT_EQ(blocks.held(), 1);  // of two events the first is done
    events.wait_all();
    EXPECT_EQ(blocks.allocate(32_MiB), a);
    EXPECT_EQ(blocks.stats().reserved, 64_MiB);
}

TEST(PinnedBlocks, WaitBehindAnOlderFreeThatIsNotDone) {
    TestEvents events;
    PinnedBlocks blocks({}, &events);
    const PinnedBlock slow = blocks.allocate(32_MiB);
    const PinnedBlock quick = blocks.allocate(32_MiB);
    events.make_busy(kBack);
    blocks.record_stream(slow, kBack);
    blocks.free(slow);
    blocks.record_stream(quick, kOut);  // complete at once, but asked about after the other
    blocks.free(quick);
    const PinnedBlock third = blocks.allocate(32_MiB);
    EXPECT_NE(third, quick);
    EXPECT_EQ(blocks.stats().reserved, 96_MiB);
}

TEST(PinnedBlocks, UnusedOnesComeBackAtOnce) {
    TestEvents events;
    PinnedBlocks blocks({}, &events);
    events.make_busy(kOut);
    const PinnedBlock a = blocks.allocate(32_MiB);
    blocks.free(a);
    EXPECT_EQ(blocks.allocate(32_MiB), a);
}

TEST(PinnedBlocks, OfACaptureNeverComeBackOnceUsed) {
    PinnedBlocks blocks;
    const PinnedBlock used = blocks.allocate(32_MiB, true);
    const PinnedBlock unused = blocks.allocate(32_MiB, true);
    blocks.record_stream(used, kOut);
    blocks.free(used);
    blocks.free(unused);
    EXPECT_EQ(blocks.allocate(32_MiB), unused);
    EXPECT_NE(blocks.allocate(32_MiB), used);
    EXPECT_EQ(blocks.stats().reserved, 96_MiB);
}

TEST(PinnedBlocks, AreExactAboveTheRoundingThreshold) {
    PinnedBlocks blocks({.max_round_threshold = 128_MiB});
    EXPECT_EQ(blocks.size(blocks.allocate(128_MiB)), 128_MiB);
    EXPECT_EQ(blocks.size(blocks.allocate(100_MiB)), 128_MiB);
    const PinnedBlock small = blocks.allocate(150_MiB);
    EXPECT_EQ(blocks.size(small), 150_MiB);
    // 150 and 200 MiB are of one size class. The free block of 150 is too small for 200, not for 140.
    blocks.free(small);
    EXPECT_EQ(blocks.size(blocks.allocate(200_MiB)), 200_MiB);
    EXPECT_EQ(blocks.allocate(140_MiB), small);
    EXPECT_EQ(blocks.stats().reserved, 606_MiB);  // 128 + 128 + 150 + 200
}

TEST(PinnedBlocks, AreNeitherRoundedNorKeptAboveTheCacheLimit) {
    TestEvents events;
    PinnedBlocks blocks({.max_round_threshold = 256_MiB, .max_cached_size = 128_MiB}, &events);
    const PinnedBlock a = blocks.allocate(130_MiB);  // below the first limit, above the second
    EXPECT_EQ(blocks.size(a), 130_MiB);
    events.make_busy(kOut);
    blocks.record_stream(a, kOut);
    blocks.free(a);
    EXPECT_EQ(blocks.stats().reserved, 130_MiB);  // its copy still reads it
    events.wait_all();
    blocks.free(blocks.allocate(1_MiB));
    EXPECT_EQ(blocks.stats().reserved, 1_MiB);
    EXPECT_EQ(blocks.stats().system_frees, 1);
    EXPECT_EQ(blocks.stats().peak_reserved, 130_MiB);
}

TEST(PinnedBlocks, AreCutFromTheReserveSegmentWhileItLasts) {
    PinnedBlocks blocks({.reserve_segment = 64_MiB});
    const PinnedBlock a = blocks.allocate(24_MiB);  // 32 of 64 MiB
    EXPECT_EQ(blocks.stats().reserved, 64_MiB);
    blocks.allocate(17_MiB);  // 64 of 64 MiB
    EXPECT_EQ(blocks.stats().system_allocations, 1);
    blocks.allocate(1_B);  // a page does not fit any more
    EXPECT_EQ(blocks.stats().reserved, 64_MiB + 1_B);
    blocks.free(a);
    blocks.empty_cache();
    EXPECT_EQ(blocks.stats().reserved, 64_MiB + 1_B);
}

TEST(PinnedBlocks, RefuseMisuse) {
    PinnedBlocks blocks;
    const PinnedBlock a = blocks.allocate(1_MiB);
    blocks.free(a);
    EXPECT_THROW(blocks.free(a), std::logic_error);
    EXPECT_THROW(blocks.record_stream(a, kOut), std::logic_error);
    EXPECT_THROW(blocks.allocate(0_B), std::logic_error);
}

}  // namespace
}  // namespace stowage::memory
