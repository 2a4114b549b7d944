#include "planner/memory/pinned_pool.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

constexpr PinnedKey kNorm{1};
constexpr PinnedKey kAttention{2};

TEST(PinnedPool, KeepsItsBuffersAndHandsOutTheLongestFreeFirst) {
    PinnedPool pool;
    const PinnedHandle a = pool.acquire(kNorm, 24_MiB, true);
    const PinnedHandle b = pool.acquire(kNorm, 24_MiB, true);
    const std::uint32_t block_of_a = pool.block_of(a);
    const std::uint32_t block_of_b = pool.block_of(b);
    pool.release(b);
    pool.release(a);
    EXPECT_EQ(pool.block_of(pool.acquire(kNorm, 24_MiB, true)), block_of_b);
    EXPECT_EQ(pool.block_of(pool.acquire(kNorm, 24_MiB, true)), block_of_a);
    EXPECT_EQ(pool.stats().system_allocations, 2);
}

TEST(PinnedPool, RoundsEveryBlockToAPowerOfTwo) {
    PinnedPool pool;
    pool.acquire(kNorm, 24_MiB, true);                        // 32 MiB
    pool.acquire(kAttention, 32_MiB, true);                   // 32 MiB
    pool.acquire(PinnedKey{3}, Bytes{(32 << 20) + 1}, true);  // 64 MiB
    EXPECT_EQ(pool.stats().requested, 88_MiB + 1_B);
    EXPECT_EQ(pool.stats().reserved, 128_MiB);
}

TEST(PinnedPool, GrowsToTheMostThatWereOutAtOnceAndNeverShrinks) {
    PinnedPool pool;
    for (int round = 0; round < 3; ++round) {
        const PinnedHandle a = pool.acquire(kNorm, 8_MiB, true);
        const PinnedHandle b = pool.acquire(kNorm, 8_MiB, true);
        pool.release(a);
        const PinnedHandle c = pool.acquire(kNorm, 8_MiB, true);
        pool.release(b);
        pool.release(c);
    }
    // At most two were out at once: two buffers of 8 MiB, idle now.
    EXPECT_EQ(pool.stats().in_use, 0_B);
    EXPECT_EQ(pool.stats().peak_in_use, 16_MiB);
    EXPECT_EQ(pool.stats().requested, 16_MiB);
    EXPECT_EQ(pool.stats().reserved, 16_MiB);
}

TEST(PinnedPool, LetsExpertBuffersShareBlocksOfOneRoundedSizeOnly) {
    PinnedPool pool;
    pool.release(pool.acquire(kNorm, 24_MiB, true));  // a 32 MiB block that stays in the pool
    const PinnedHandle expert = pool.acquire(kNorm, 24_MiB, false);
    EXPECT_EQ(pool.stats().reserved, 64_MiB);
    EXPECT_EQ(pool.stats().peak_requested, 48_MiB);
    pool.release(expert);
    EXPECT_EQ(pool.stats().requested, 24_MiB);
    // 17 MiB and 31 MiB round to 32 MiB: the block given back serves both in turn. 33 MiB needs a new one of 64 MiB.
    pool.release(pool.acquire(kAttention, 17_MiB, false));
    pool.release(pool.acquire(kAttention, 31_MiB, false));
    EXPECT_EQ(pool.stats().reserved, 64_MiB);
    pool.acquire(kAttention, 33_MiB, false);
    EXPECT_EQ(pool.stats().reserved, 128_MiB);
}

TEST(PinnedPool, KeepsAQueueForEachShapeAndType) {
    // Attention's query and the hidden state of 4096 tokens have the same 32 MiB in bf16, but not the same shape.
    PinnedKeys keys;
    const PinnedKey hidden = keys.key({1, 4096, 4096}, types::DataType::bf16);
    const PinnedKey query = keys.key({1, 32, 4096, 128}, types::DataType::bf16);
    EXPECT_NE(hidden, query);
    EXPECT_NE(hidden, keys.key({1, 4096, 4096}, types::DataType::fp16));
    EXPECT_EQ(hidden, keys.key({1, 4096, 4096}, types::DataType::bf16));
    EXPECT_EQ(keys.size(), 3);
    PinnedPool pool;
    pool.release(pool.acquire(hidden, 32_MiB, true));
    pool.release(pool.acquire(query, 32_MiB, true));
    EXPECT_EQ(pool.stats().reserved, 64_MiB);
    EXPECT_EQ(pool.stats().peak_in_use, 32_MiB);
}

TEST(PinnedPool, LetsExpertBuffersWaitForTheirCopiesAndPooledOnesNot) {
    TestEvents events;
    PinnedPool pool({}, &events);
    events.make_busy(2);
    const PinnedHandle pooled = pool.acquire(kNorm, 32_MiB, true);
    const std::uint32_t block = pool.block_of(pooled);
    pool.record_stream(pooled, 2);
    pool.release(pooled);
    EXPECT_EQ(pool.block_of(pool.acquire(kNorm, 32_MiB, true)), block);
    EXPECT_FALSE(pool.holds_blocks());
    const PinnedHandle expert = pool.acquire(kAttention, 32_MiB, false);
    pool.record_stream(expert, 2);
    pool.release(expert);
    EXPECT_TRUE(pool.holds_blocks());
    pool.acquire(kAttention, 32_MiB, false);
    EXPECT_EQ(pool.stats().reserved, 96_MiB);
    events.wait_all();
    pool.acquire(kAttention, 32_MiB, false);
    EXPECT_EQ(pool.stats().reserved, 96_MiB);
    EXPECT_EQ(pool.stats().peak_reserved, 96_MiB);
}

TEST(PinnedPool, RefusesMisuse) {
    PinnedPool pool;
    const PinnedHandle buffer = pool.acquire(kNorm, 1_MiB, true);
    EXPECT_THROW(pool.acquire(kNorm, 2_MiB, true), std::logic_error);
    pool.release(buffer);
    EXPECT_THROW(pool.release(buffer), std::logic_error);
    EXPECT_THROW(pool.acquire(kAttention, 0_B, false), std::logic_error);
}

}  // namespace
}  // namespace stowage::memory
