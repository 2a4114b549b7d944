#include "planner/memory/free_list.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <stdexcept>
#include <tuple>

#include "tests/support/seed.hpp"

namespace stowage::memory {
namespace {

TEST(FreeList, TakesTheSmallestThatFitsAndTheLowestOfThose) {
    FreeList list;
    list.insert({Bytes{1024}, 4096, 0});
    list.insert({Bytes{2048}, 9000, 1});
    list.insert({Bytes{2048}, 8000, 2});
    list.insert({Bytes{2048}, 9500, 3});
    EXPECT_EQ(list.best_fit(Bytes{1024})->block, 0U);
    EXPECT_EQ(list.best_fit(Bytes{1536})->block, 2U);
    list.erase(Bytes{2048}, 8000);
    EXPECT_EQ(list.best_fit(Bytes{2048})->block, 1U);
    EXPECT_EQ(list.largest()->block, 3U);
    EXPECT_FALSE(list.best_fit(Bytes{2560}).has_value());
}

TEST(FreeList, RefusesToEraseWhatIsNotThere) {
    FreeList list;
    list.insert({Bytes{1024}, 4096, 0});
    EXPECT_THROW(list.erase(Bytes{512}, 4096), std::logic_error);
    EXPECT_THROW(list.erase(Bytes{1024}, 512), std::logic_error);
}

/// Few sizes fill the bins, many sizes drop empty ones; both against an ordered set.
class FreeListProperty : public testing::TestWithParam<std::int64_t> {};

TEST_P(FreeListProperty, BehavesAsAnOrderedSet) {
    std::mt19937_64 random(tests::property_seed(20260801));
    FreeList list;
    std::set<std::tuple<std::int64_t, Address, BlockIndex>> oracle;
    const auto size_below = [&] { return 512 * (1 + static_cast<std::int64_t>(random() % GetParam())); };
    for (BlockIndex step = 0; step < 20000; ++step) {
        if (random() % 2000 == 0) {
            list.clear();
            oracle.clear();
        } else if (random() % 2 == 0 && oracle.size() < 300) {
            const std::int64_t size = size_below();
            const Address address = 512 * (random() % 1000000);
            if (!oracle.emplace(size, address, step).second) continue;
            list.insert({Bytes{size}, address, step});
        } else if (!oracle.empty()) {
            const auto found = oracle.lower_bound({size_below(), 0, 0});
            const auto victim = found == oracle.end() ? oracle.begin() : found;
            list.erase(Bytes{std::get<0>(*victim)}, std::get<1>(*victim));
            oracle.erase(victim);
        }
        const std::int64_t wanted = size_below();
        const auto expected = oracle.lower_bound({wanted, 0, 0});
        const auto found = list.best_fit(Bytes{wanted});
        ASSERT_EQ(found.has_value(), expected != oracle.end());
        if (found) {
            ASSERT_EQ(std::tuple(found->size.count, found->address, found->block), *expected);
        }
        const auto largest = list.largest();
        ASSERT_EQ(largest.has_value(), !oracle.empty());
        if (largest) {
            ASSERT_EQ(std::tuple(largest->size.count, largest->address, largest->block), *oracle.rbegin());
        }
    }
    std::vector<std::tuple<std::int64_t, Address, BlockIndex>> listed;
    for (const FreeList::Entry& entry : list.entries())
        listed.emplace_back(entry.size.count, entry.address, entry.block);
    EXPECT_TRUE(std::equal(listed.begin(), listed.end(), oracle.begin(), oracle.end()));
}

INSTANTIATE_TEST_SUITE_P(DistinctSizes, FreeListProperty, testing::Values(1, 8, 200, 100000));

TEST(FreeList, GoesOnBehindAnEntryByAddressAndThenBySize) {
    FreeList list;
    list.insert({Bytes{1024}, 3000, 0});
    list.insert({Bytes{1024}, 1000, 1});
    list.insert({Bytes{4096}, 500, 2});
    list.insert({Bytes{2048}, 100, 3});
    list.erase(Bytes{2048}, 100);  // leaves an empty bin in between
    EXPECT_EQ(list.after({Bytes{1024}, 1000, 1})->block, 0U);
    EXPECT_EQ(list.after({Bytes{1024}, 3000, 0})->block, 2U);
    EXPECT_FALSE(list.after({Bytes{4096}, 500, 2}).has_value());
}

}  // namespace
}  // namespace stowage::memory
