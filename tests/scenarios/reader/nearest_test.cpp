#include "scenarios/reader/nearest.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace stowage::reader {
namespace {

using namespace std::string_view_literals;

constexpr std::array kWords{"name"sv, "nodes"sv, "micro_batch_size"sv, "none"sv};

TEST(Nearest, FindsAWordByItsEdits) {
    EXPECT_EQ(nearest("nmae", kWords), "name");   // two replacements
    EXPECT_EQ(nearest("node", kWords), "nodes");  // one insertion; none and name are two away or more
    EXPECT_EQ(nearest("microbatchsize", kWords), "micro_batch_size");
    EXPECT_EQ(nearest("Micro-Batch-Size", kWords), "micro_batch_size");  // case and hyphens cost nothing
}

TEST(Nearest, FindsNothingFarAway) {
    EXPECT_EQ(nearest("colour", kWords), "");
    EXPECT_EQ(nearest("x", kWords), "");
    EXPECT_EQ(nearest("", kWords), "");
    EXPECT_EQ(nearest(std::string(1000, 'n'), kWords), "");
}

TEST(Nearest, GivesTheFirstOfTwoThatAreAsNear) { EXPECT_EQ(nearest("nome", kWords), "name"); }

}  // namespace
}  // namespace stowage::reader
