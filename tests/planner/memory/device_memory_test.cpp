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

TEST(VirtualDeviceMemory, JoinsTheGapsThatSmallSegmentsLeave) {
    VirtualDeviceMemory memory;
    const Address first = *memory.reserve(10_MiB);
    const Address second = *memory.reserve(10_MiB);
    const Address third = *memory.reserve(10_MiB);
    const Address fourth = *memory.reserve(10_MiB);
    EXPECT_EQ(second, first + (10U << 20));
    memory.release(first, 10_MiB);
    memory.release(third, 10_MiB);
    memory.release(second, 10_MiB);
    EXPECT_EQ(*memory.reserve(30_MiB), first);
    EXPECT_EQ(*memory.reserve(2_MiB), fourth + (10U << 20));
}

TEST(VirtualDeviceMemory, PutsEachLargeSegmentBelowTheOneBefore) {
    VirtualDeviceMemory memory;
    const Address first = *memory.reserve(32_MiB);
    EXPECT_EQ(*memory.reserve(64_MiB), first - (64U << 20));
    EXPECT_GT(*memory.reserve(30_MiB), first);
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
