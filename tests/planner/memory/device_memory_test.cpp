#include "planner/memory/device_memory.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace stowage::memory {
namespace {

using namespace types::literals;

TEST(VirtualDeviceMemory, RefusesWhatGoesOverItsLimitAndOnlyThat) {
    VirtualDeviceMemory memory(100_MiB);
    const auto first = memory.reserve(60_MiB);
    ASSERT_TRUE(first.has_value());
    EXPECT_FALSE(memory.reserve(42_MiB).has_value());
    EXPECT_TRUE(memory.reserve(40_MiB).has_value());
    EXPECT_EQ(memory.reserved(), 100_MiB);
    memory.release(*first, 60_MiB);
    EXPECT_EQ(memory.reserved(), 40_MiB);
}

TEST(VirtualDeviceMemory, IsLimitedByBytesNotByGaps) {
    VirtualDeviceMemory memory(60_MiB);
    const Address first = *memory.reserve(20_MiB);
    memory.reserve(20_MiB);
    const Address third = *memory.reserve(20_MiB);
    memory.release(first, 20_MiB);
    memory.release(third, 20_MiB);
    EXPECT_TRUE(memory.reserve(40_MiB).has_value());  // no 40 MiB lie together, yet pages are free
}

TEST(VirtualDeviceMemory, FillsTheLowestGapThatHoldsASegment) {
    VirtualDeviceMemory memory;
    // 26 MiB are free at first: 10 and 10 go there, the third opens a chunk of 32 below, the fourth follows in it.
    const Address first = *memory.reserve(10_MiB);
    EXPECT_EQ(*memory.reserve(10_MiB), first + (10U << 20));
    const Address third = *memory.reserve(10_MiB);
    EXPECT_LT(third, first);
    EXPECT_EQ(*memory.reserve(10_MiB), third + (10U << 20));
    EXPECT_EQ(*memory.reserve(6_MiB), third + (20U << 20));  // 12 are left there, 6 above
    EXPECT_EQ(*memory.reserve(6_MiB), third + (26U << 20));
    EXPECT_EQ(*memory.reserve(6_MiB), first + (20U << 20));
}

TEST(VirtualDeviceMemory, JoinsTheGapsThatSegmentsLeave) {
    VirtualDeviceMemory memory;
    const Address first = *memory.reserve(64_MiB);
    memory.release(first, 64_MiB);
    const Address chunk = *memory.reserve(40_MiB);
    const Address second = *memory.reserve(10_MiB);
    const Address third = *memory.reserve(10_MiB);
    EXPECT_EQ(third, chunk + (50U << 20));
    memory.release(chunk, 40_MiB);
    memory.release(second, 10_MiB);
    EXPECT_EQ(*memory.reserve(50_MiB), chunk);
}

TEST(VirtualDeviceMemory, PutsEachChunkBelowTheOneBeforeAndUsesNoneAgain) {
    VirtualDeviceMemory memory;
    const Address first = *memory.reserve(32_MiB);
    EXPECT_EQ(*memory.reserve(64_MiB), first - (64U << 20));
    EXPECT_EQ(*memory.reserve(40_MiB), first - (128U << 20));  // of 64 MiB
    memory.release(first, 32_MiB);
    EXPECT_EQ(*memory.reserve(32_MiB), first - (160U << 20));
}

TEST(VirtualDeviceMemory, OpensAChunkForTheFirstCapture) {
    VirtualDeviceMemory memory;
    const Address before = *memory.reserve(64_MiB);
    memory.begin_capture();
    const Address inside = *memory.reserve(40_MiB);
    EXPECT_GT(inside, before);
    EXPECT_EQ(*memory.reserve(64_MiB), inside + (40U << 20));
    memory.begin_capture();
    EXPECT_EQ(*memory.reserve(300_MiB), inside + (104U << 20));
    EXPECT_LT(*memory.reserve(32_MiB), before);  // 416 - 404 = 12 MiB are left
    memory.release(inside, 40_MiB);
    EXPECT_EQ(*memory.reserve(32_MiB), inside);
}

TEST(VirtualDeviceMemory, RefusesToTakeBackWhatItDidNotGive) {
    VirtualDeviceMemory memory;
    const Address base = *memory.reserve(2_MiB);
    memory.reserve(2_MiB);
    EXPECT_THROW(memory.release(base + (64U << 20), 2_MiB), std::logic_error);
    memory.release(base, 2_MiB);
    EXPECT_THROW(memory.release(base, 2_MiB), std::logic_error);
}

TEST(VirtualDeviceMemory, CountsWhatIsMappedOfARangeAndNotTheRange) {
    VirtualDeviceMemory memory(100_MiB);
    const Address range = memory.reserve_range(120_MiB);
    EXPECT_EQ(memory.reserved(), 0_B);
    EXPECT_LE(memory.reserve_range(120_MiB) + (Address{120} << 20), range);
    EXPECT_TRUE(memory.map(range, 60_MiB));
    EXPECT_FALSE(memory.map(range + (Address{60} << 20), 60_MiB));
    EXPECT_EQ(memory.reserved(), 60_MiB);
    memory.unmap(range, 20_MiB);
    EXPECT_EQ(memory.reserved(), 40_MiB);
    EXPECT_THROW(memory.unmap(range, 60_MiB), std::logic_error);
}

}  // namespace
}  // namespace stowage::memory
