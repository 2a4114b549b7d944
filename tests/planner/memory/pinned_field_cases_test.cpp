// Public reports of users about pinned host memory, restated as small cases; the arithmetic is the reports'.

#include <gtest/gtest.h>

#include <vector>

#include "planner/memory/pinned_arena.hpp"
#include "planner/memory/pinned_blocks.hpp"
#include "planner/memory/pinned_pool.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

Bytes gib(double count) { return Bytes{static_cast<std::int64_t>(count * static_cast<double>(kGiB))}; }

// sgl-project/sglang pull request 36562: 20.4 GiB a rank become 32, and 146.7 GiB on a host become 260.
TEST(PinnedFieldCases, EightRanksOf20GiBTake256GiBOfTheHostAndOnly163AreData) {
    PinnedPool pool;
    pool.acquire(PinnedKey{1}, gib(20.4), true);
    EXPECT_EQ(pool.stats().requested, gib(20.4));
    EXPECT_EQ(pool.stats().reserved, 32_GiB);
    // A node of eight: data 8 * 20.4 = 163.2 GiB, reserved 8 * 32 = 256 GiB. A host of 200 GiB holds the data only.
    const PinnedArena arena({{gib(20.4), 0, 1}});
    EXPECT_GT(8 * pool.stats().reserved.count, 200 * kGiB);
    EXPECT_LT(8 * arena.size().count, 200 * kGiB);
    EXPECT_EQ(8 * pool.stats().reserved.count, 256 * kGiB);
    EXPECT_NEAR(8 * types::in_gib(arena.size()), 163.2, 1e-5);
}

// pytorch/pytorch pull requests 171662 and 192722.
TEST(PinnedFieldCases, AThresholdStopsTheRoundingAndTheReuseOfWhatLiesAboveIt) {
    PinnedBlocks blocks({.max_round_threshold = 1_GiB, .max_cached_size = 1_GiB});
    for (int step = 0; step < 4; ++step) blocks.free(blocks.allocate(gib(0.9)));
    EXPECT_EQ(blocks.stats().reserved, 1_GiB);
    EXPECT_EQ(blocks.stats().system_allocations, 1);
    for (int step = 0; step < 4; ++step) {
        const PinnedBlock block = blocks.allocate(gib(1.5));
        EXPECT_EQ(blocks.size(block), gib(1.5));
        EXPECT_EQ(blocks.stats().reserved, gib(2.5));
        blocks.free(block);
    }
    // Every one of the four steps asked the system again: at 3 ms each, 12 ms in all.
    EXPECT_EQ(blocks.stats().system_allocations, 1 + 4);
    EXPECT_EQ(blocks.stats().system_frees, 4);
}

TEST(PinnedFieldCases, RoundingAndCachingAreTwoSettings) {
    // Above the first and below the second: exact, and reused.
    PinnedBlocks blocks({.max_round_threshold = 1_GiB, .max_cached_size = 2_GiB});
    for (int step = 0; step < 4; ++step) blocks.free(blocks.allocate(gib(1.5)));
    EXPECT_EQ(blocks.stats().reserved, gib(1.5));
    EXPECT_EQ(blocks.stats().system_allocations, 1);
    // Buckets of 150 and 200 MB share a size class; the smaller block never serves the larger request.
    PinnedBlocks buckets({.max_round_threshold = 128_MiB, .max_cached_size = 1_GiB});
    buckets.free(buckets.allocate(Bytes{150'000'000}));
    EXPECT_EQ(buckets.size(buckets.allocate(Bytes{200'000'000})), Bytes{200'000'000});
}

// cupy/cupy issue 7742.
TEST(PinnedFieldCases, APoolOfPowersOfTwoKeepsWhatItHeldUntilTrimmed) {
    PinnedBlocks pool;
    EXPECT_EQ(pool.size(pool.allocate(10_GiB)), 16_GiB);
    PinnedBlocks large;
    EXPECT_EQ(large.size(large.allocate(234_GiB)), 256_GiB);

    PinnedBlocks sequence;
    sequence.free(sequence.allocate(3_GiB));
    sequence.allocate(5_GiB);
    EXPECT_EQ(sequence.stats().reserved, 12_GiB);  // 4 + 8
    sequence.empty_cache();
    EXPECT_EQ(sequence.stats().reserved, 8_GiB);
    // One arena for both: they never meet, so 5 GiB.
    EXPECT_EQ(PinnedArena({{3_GiB, 0, 1}, {5_GiB, 2, 3}}).size(), 5_GiB);
}

}  // namespace
}  // namespace stowage::memory
