#include "planner/layers/recomputed_spans.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace stowage::layers {
namespace {

using types::Recompute;
using types::RecomputeGranularity;
using types::RecomputeMethod;

Recompute full(RecomputeMethod method, std::int64_t layers) {
    return {.recompute_granularity = RecomputeGranularity::full,
            .recompute_method = method,
            .recompute_num_layers = layers,
            .recompute_modules = {}};
}

std::string text(const std::vector<RecomputedSpan>& spans) {
    std::string words;
    for (const RecomputedSpan& span : spans)
        words += (words.empty() ? "" : " ") + std::to_string(span.first) + "-" + std::to_string(span.last);
    return words;
}

/// A first stage of five layers: the embedding before them, the head behind.
const std::vector<std::int64_t> kLayers{-1, 0, 1, 2, 3, 4, -1};

TEST(RecomputedSpans, GroupsAllLayersUniformly) {
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::uniform, 1), kLayers)), "1-1 2-2 3-3 4-4 5-5");
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::uniform, 2), kLayers)), "1-2 3-4 5-5");
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::uniform, 9), kLayers)), "1-5");
}

TEST(RecomputedSpans, TakesTheFirstLayersOfABlockOneByOne) {
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::block, 2), kLayers)), "1-1 2-2");
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::block, 9), kLayers)), "1-1 2-2 3-3 4-4 5-5");
}

TEST(RecomputedSpans, HasNoneWithoutLayersOrWithoutFullRecomputation) {
    EXPECT_EQ(text(recomputed_spans(full(RecomputeMethod::uniform, 1), {-1, -1})), "");
    EXPECT_EQ(text(recomputed_spans(Recompute{}, kLayers)), "");
}

}  // namespace
}  // namespace stowage::layers
