#include "planner/memory/size_rules.hpp"

#include <gtest/gtest.h>

namespace stowage::memory {
namespace {

using namespace types::literals;

TEST(SizeRules, RoundsRequestsTo512Bytes) {
    const AllocatorConfig config;
    EXPECT_EQ(block_size(config, 1_B), 512_B);
    EXPECT_EQ(block_size(config, 512_B), 512_B);
    EXPECT_EQ(block_size(config, 513_B), 1_KiB);
    EXPECT_EQ(block_size(config, 1_GiB), 1_GiB);
}

TEST(SizeRules, RoundsToQuartersOfAPowerOfTwoWhereAsked) {
    const AllocatorConfig config{.roundup_power2_divisions = 4};
    EXPECT_EQ(block_size(config, 2048_B), 2048_B);      // 4 x 512 and below: as ever
    EXPECT_EQ(block_size(config, 1300_B), 1536_B);      // likewise
    EXPECT_EQ(block_size(config, 2049_B), 2560_B);      // 2048 + 2048 / 4
    EXPECT_EQ(block_size(config, 1200_MiB), 1280_MiB);  // 1024, 1280, 1536, ...
    EXPECT_EQ(block_size(config, 1_GiB), 1_GiB);
}

TEST(SizeRules, SizesSegmentsByThePoolAndTheBlock) {
    EXPECT_EQ(pool_class(1_MiB), PoolClass::small);
    EXPECT_EQ(pool_class(1_MiB + 512_B), PoolClass::large);
    EXPECT_EQ(segment_size(512_B), 2_MiB);
    EXPECT_EQ(segment_size(1_MiB + 512_B), 20_MiB);
    EXPECT_EQ(segment_size(10_MiB - 512_B), 20_MiB);
    EXPECT_EQ(segment_size(10_MiB), 10_MiB);
    EXPECT_EQ(segment_size(10_MiB + 512_B), 12_MiB);
}

TEST(SizeRules, LeavesUpToAMebibyteOfALargeBlockUnsplit) {
    const AllocatorConfig config;
    EXPECT_FALSE(splits(config, PoolClass::large, 20_MiB, 19_MiB));
    EXPECT_TRUE(splits(config, PoolClass::large, 20_MiB, 19_MiB - 512_B));
    EXPECT_TRUE(splits(config, PoolClass::small, 1_MiB, 1_MiB - 512_B));
    EXPECT_FALSE(splits(config, PoolClass::small, 1_MiB, 1_MiB));
}

TEST(SizeRules, CutsEveryExpandableBlockThatLeaves512Bytes) {
    const AllocatorConfig config{.expandable_segments = true};
    EXPECT_TRUE(splits(config, PoolClass::large, 20_MiB, 20_MiB - 512_B));
    EXPECT_FALSE(splits(config, PoolClass::large, 20_MiB, 20_MiB));
}

TEST(SizeRules, MapsAndUnmapsExpandableSegmentsInGranules) {
    // Pages of 2 MiB for the small pool and of 20 MiB for the large one.
    EXPECT_EQ(mapped_size(granule(PoolClass::small), 1_MiB), 2_MiB);
    EXPECT_EQ(mapped_size(granule(PoolClass::large), 20_MiB), 20_MiB);
    EXPECT_EQ(mapped_size(granule(PoolClass::large), 20_MiB + 512_B), 40_MiB);
    // 30 MiB to 90 MiB hold the granules from 40 MiB to 80 MiB; 30 MiB to 50 MiB hold none.
    EXPECT_EQ(whole_granules(granule(PoolClass::large), 30_MiB, 60_MiB).offset, 40_MiB);
    EXPECT_EQ(whole_granules(granule(PoolClass::large), 30_MiB, 60_MiB).size, 40_MiB);
    EXPECT_EQ(whole_granules(granule(PoolClass::large), 30_MiB, 20_MiB).size, 0_B);
    EXPECT_EQ(whole_granules(granule(PoolClass::large), 0_B, 20_MiB).size, 20_MiB);
    // 1 1/8 x 80 GiB = 90 GiB = 92160 MiB = 4608 granules of 20 MiB; 1 1/8 x 96 MiB = 108 MiB, rounded up.
    EXPECT_EQ(expandable_range(granule(PoolClass::large), 80_GiB), 90_GiB);
    EXPECT_EQ(expandable_range(granule(PoolClass::large), 96_MiB), 120_MiB);
}

TEST(SizeRules, KeepsBlocksOfTheSplitLimitWhole) {
    const AllocatorConfig config{.max_split_size = 64_MiB};
    EXPECT_TRUE(splits(config, PoolClass::large, 80_MiB, 60_MiB));
    EXPECT_FALSE(splits(config, PoolClass::large, 80_MiB, 64_MiB));
    EXPECT_FALSE(may_serve(config, 64_MiB, 60_MiB));         // never lent to a request below the limit
    EXPECT_TRUE(may_serve(config, 84_MiB - 512_B, 64_MiB));  // less than 20 MiB too much
    EXPECT_FALSE(may_serve(config, 84_MiB, 64_MiB));
}

}  // namespace
}  // namespace stowage::memory
