#include "planner/memory/pinned_arena.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "planner/memory/pinned_pool.hpp"
#include "tests/support/seed.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

void expect_sound(const PinnedArena& arena, const std::vector<PinnedUse>& uses) {
    for (std::size_t i = 0; i < uses.size(); ++i) {
        EXPECT_EQ(arena.offset(i).count % PinnedArena::kAlignment.count, 0);
        EXPECT_GE(arena.offset(i), 0_B);
        EXPECT_LE(arena.offset(i) + uses[i].bytes, arena.size());
        for (std::size_t j = 0; j < i; ++j) {
            const bool in_time = uses[i].acquired < uses[j].released && uses[j].acquired < uses[i].released;
            const bool in_space =
                arena.offset(i) < arena.offset(j) + uses[j].bytes && arena.offset(j) < arena.offset(i) + uses[i].bytes;
            EXPECT_FALSE(in_time && in_space) << i << " and " << j;
        }
    }
}

/// The smallest arena: some order of placing each buffer at the lowest free offset reaches it.
std::int64_t smallest_arena(const std::vector<PinnedUse>& uses) {
    std::vector<std::size_t> order(uses.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    do {
        std::vector<std::int64_t> offset(uses.size(), -1);
        std::int64_t end = 0;
        for (const std::size_t i : order) {
            std::int64_t at = 0;
            for (bool moved = true; moved;) {
                moved = false;
                for (std::size_t j = 0; j < uses.size(); ++j) {
                    if (offset[j] < 0 || uses[i].acquired >= uses[j].released || uses[j].acquired >= uses[i].released)
                        continue;
                    if (at < offset[j] + uses[j].bytes.count && offset[j] < at + uses[i].bytes.count) {
                        at = offset[j] + uses[j].bytes.count;
                        moved = true;
                    }
                }
            }
            offset[i] = at;
            end = std::max(end, at + uses[i].bytes.count);
        }
        best = std::min(best, end);
    } while (std::next_permutation(order.begin(), order.end()));
    return best;
}

TEST(PinnedArena, GivesTheSameBytesToBuffersThatDoNotMeet) {
    // The example of the header: A and B meet, C comes after both.
    const std::vector<PinnedUse> uses{{24_MiB, 0, 3}, {8_MiB, 1, 2}, {16_MiB, 4, 5}};
    const PinnedArena arena(uses);
    EXPECT_EQ(arena.size(), 32_MiB);
    EXPECT_TRUE(arena.exact());
    EXPECT_EQ(arena.offset(0), 0_B);
    EXPECT_EQ(arena.offset(1), 24_MiB);
    EXPECT_EQ(arena.offset(2), 0_B);
}

TEST(PinnedArena, IsExactForWhatComesBackLastInFirstOut) {
    // Two microbatches in flight, 7 layers of 24 + 17 + 5 MiB each: what a pipeline's first stage of two does. Live at
    // once: 2 * 7 * 46 MiB = 644 MiB. Rounded to powers of two it would be 2 * 7 * (32 + 32 + 8) = 1008 MiB.
    PinnedLedger ledger;
    PinnedPool pool;
    std::vector<std::vector<std::pair<std::size_t, PinnedHandle>>> held(4);
    auto forward = [&](std::size_t microbatch) {
        for (int layer = 0; layer < 7; ++layer)
            for (const auto& [key, bytes] : {std::pair(1, 24_MiB), std::pair(2, 17_MiB), std::pair(3, 5_MiB)})
                held[microbatch].emplace_back(ledger.acquire(bytes),
                                              pool.acquire(static_cast<PinnedKey>(key), bytes, true));
    };
    auto backward = [&](std::size_t microbatch) {
        for (; !held[microbatch].empty(); held[microbatch].pop_back()) {
            ledger.release(held[microbatch].back().first);
            pool.release(held[microbatch].back().second);
        }
    };
    forward(0);
    for (const std::size_t microbatch : {0U, 1U, 2U}) {
        forward(microbatch + 1);
        backward(microbatch);
    }
    backward(3);
    const PinnedArena arena(ledger.uses());
    expect_sound(arena, ledger.uses());
    EXPECT_EQ(arena.size(), 644_MiB);
    EXPECT_TRUE(arena.exact());
    EXPECT_EQ(pool.stats().reserved, 1008_MiB);
}

TEST(PinnedArena, AlignsEveryBuffer) {
    const std::vector<PinnedUse> uses{{1_B, 0, 9}, {513_B, 1, 9}, {512_B, 2, 9}};
    const PinnedArena arena(uses);
    expect_sound(arena, uses);
    EXPECT_EQ(arena.size(), 512_B + 1024_B + 512_B);
}

TEST(PinnedArena, PlacesByFallingSizeWhereTimeOrderLeavesHoles) {
    // In the order of time A (1) goes to 0, B (2) behind it to 1; A leaves; C (2) does not fit below B and goes to
    // 3: 5. By size B lies at 0, C at 2, A at 2 before C: 4, which is what B and C need.
    const std::vector<PinnedUse> uses{{1_MiB, 0, 2}, {2_MiB, 1, 5}, {2_MiB, 3, 4}};
    const PinnedArena arena(uses);
    expect_sound(arena, uses);
    EXPECT_EQ(arena.size(), 4_MiB);
    EXPECT_TRUE(arena.exact());
}

TEST(PinnedArena, IsNeverBelowTheBoundAndOnFewBuffersNearTheSmallest) {
    std::mt19937 random(tests::property_seed(7));
    int smallest = 0;
    for (int round = 0; round < 200; ++round) {
        std::vector<PinnedUse> uses;
        for (int i = 0; i < 6; ++i) {
            const std::uint64_t begin = random() % 8;
            uses.push_back({Bytes{512 * static_cast<std::int64_t>(1 + random() % 4)}, begin, begin + 1 + random() % 5});
        }
        const PinnedArena arena(uses);
        expect_sound(arena, uses);
        const std::int64_t best = smallest_arena(uses);
        EXPECT_GE(arena.size().count, best);
        EXPECT_LE(arena.live_peak().count, best);
        if (arena.exact()) {
            EXPECT_EQ(arena.size().count, best);
        }
        EXPECT_LE(arena.size().count, best * 3 / 2);
        smallest += arena.size().count == best ? 1 : 0;
    }
    EXPECT_GE(smallest, 180);
}

TEST(PinnedArena, IsTheSameEveryTime) {
    std::mt19937 random(tests::property_seed(7));
    std::vector<PinnedUse> uses;
    for (int i = 0; i < 500; ++i) {
        const std::uint64_t begin = random() % 1000;
        uses.push_back({Bytes{static_cast<std::int64_t>(1 + random() % 100000)}, begin, begin + 1 + random() % 100});
    }
    const PinnedArena first(uses);
    const PinnedArena second(uses);
    expect_sound(first, uses);
    EXPECT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < uses.size(); ++i) EXPECT_EQ(first.offset(i), second.offset(i));
}

TEST(PinnedArena, RefusesBuffersWithoutBytesOrLife) {
    EXPECT_EQ(PinnedArena(std::vector<PinnedUse>{}).size(), 0_B);
    EXPECT_THROW(PinnedArena({{0_B, 0, 1}}), std::logic_error);
    EXPECT_THROW(PinnedArena({{1_B, 1, 1}}), std::logic_error);
}

}  // namespace
}  // namespace stowage::memory
