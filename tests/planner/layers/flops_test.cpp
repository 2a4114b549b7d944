#include <gtest/gtest.h>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

double at(const LayerScript& script, Part part, Phase phase) { return flops_by_part(script)[{part, phase}]; }

// One layer of Llama-3-70B, 4096 tokens, one GPU; T h = 4096 * 8192 = 33,554,432.
//   qkv  2 T h (64 + 16) 128 = 2 * 33,554,432 * 10,240;   projection 2 T h 8192;   fc1 2 T h 2 * 28,672;   fc2 2 T h
//   28,672 attention, causal half of two products: 2 * 4096^2 * 8192; backward five products: 5 * 4096^2 * 8192
TEST(Flops, OfADenseLayerAreTheClosedForm) {
    const LayerScript layer = script_of(llama3_70b(), ScriptKind::dense_layer);
    constexpr double kTokenWidth = 33'554'432.0;
    constexpr double kScores = 4096.0 * 4096.0 * 8192.0;
    EXPECT_EQ(at(layer, Part::qkv_linear, Phase::forward), 2 * kTokenWidth * 10'240);
    EXPECT_EQ(at(layer, Part::attn_proj, Phase::forward), 2 * kTokenWidth * 8'192);
    EXPECT_EQ(at(layer, Part::mlp_fc1, Phase::forward), 2 * kTokenWidth * 57'344);
    EXPECT_EQ(at(layer, Part::mlp_fc2, Phase::forward), 2 * kTokenWidth * 28'672);
    EXPECT_EQ(at(layer, Part::core_attn, Phase::forward), 2 * kScores);
    EXPECT_EQ(at(layer, Part::core_attn, Phase::backward), 5 * kScores);
    const double linears = 2 * kTokenWidth * (10'240 + 8'192 + 57'344 + 28'672);
    EXPECT_EQ(flops(layer, Phase::forward), linears + 2 * kScores);
    EXPECT_EQ(flops(layer, Phase::backward), linears + 5 * kScores);
    EXPECT_EQ(flops(layer, Phase::weight_gradient), linears);
}

TEST(Flops, OfALayerAreSplitEvenlyOverTensorRanks) {
    Scenario scenario = llama3_70b();
    const double whole = flops(script_of(scenario, ScriptKind::dense_layer), Phase::forward);
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    EXPECT_EQ(flops(script_of(scenario, ScriptKind::dense_layer), Phase::forward), whole / 8);
}

// One layer of Qwen3-30B-A3B, 4096 tokens, 8 experts each: N = 32,768 rows of h 2048, gated width 768.
TEST(Flops, OfExpertsCountTheChosenOnesOnly) {
    const LayerScript layer = script_of(qwen3_30b_a3b(), ScriptKind::moe_layer);
    EXPECT_EQ(at(layer, Part::expert_fc1, Phase::forward), 2.0 * 32'768 * 2048 * 1536);
    EXPECT_EQ(at(layer, Part::expert_fc2, Phase::forward), 2.0 * 32'768 * 2048 * 768);
    EXPECT_EQ(at(layer, Part::expert_fc2, Phase::weight_gradient), 2.0 * 32'768 * 2048 * 768);
    EXPECT_EQ(at(layer, Part::router, Phase::forward), 2.0 * 4096 * 2048 * 128);
}

// 1.25 times 32,768 rows on the most loaded rank.
TEST(Flops, OfTheMostLoadedRankGrowWithTheSkew) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.expert_model_parallel_size = 8;
    scenario.parallel.data_parallel_size = 8;
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 1.25;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    EXPECT_EQ(at(layer, Part::expert_fc1, Phase::forward), 2.0 * 40'960 * 2048 * 1536);
}

// With one expert-parallel rank every token stays; with two the most a rank can get is everything.
TEST(Flops, AreNeverThoseOfMoreTokensThanThereAre) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 3;
    EXPECT_EQ(at(script_of(scenario, ScriptKind::moe_layer), Part::expert_fc1, Phase::forward),
              2.0 * 32'768 * 2048 * 1536);
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.parallel.data_parallel_size = 2;
    EXPECT_EQ(at(script_of(scenario, ScriptKind::moe_layer), Part::expert_fc1, Phase::forward),
              2.0 * 2 * 32'768 * 2048 * 1536);
}

// 2 T h V forward, the same twice backward; V = 128,256 rounds up to 128,256 = 1002 * 128.
TEST(Flops, OfTheOutputLayerUseThePaddedVocabulary) {
    const LayerScript head = script_of(llama3_70b(), ScriptKind::head);
    const double product = 2.0 * 4096 * 8192 * 128'256;
    EXPECT_EQ(at(head, Part::output_layer, Phase::forward), product);
    EXPECT_EQ(at(head, Part::output_layer, Phase::backward), product);
    EXPECT_EQ(at(head, Part::output_layer, Phase::weight_gradient), product);
}

// Three times the forward of all layers and the output layer: per token 80 layers of
// 2 * 8192 * (10,240 + 8,192 + 57,344 + 28,672) + 2 * 4096 * 8192, and 2 * 8192 * 128,256.
TEST(Flops, QuotedForAStepCountTheForwardThreeTimes) {
    Scenario scenario = llama3_70b();
    scenario.batch.global_batch_size = 2;
    const double layer = 2.0 * 8192 * 104'448 + 2.0 * 4096 * 8192;
    const double per_token = 80 * layer + 2.0 * 8192 * 128'256;
    EXPECT_EQ(model_flops_per_step(scenario), 3 * 2 * 4096 * per_token);
    const LayerScript script = script_of(scenario, ScriptKind::dense_layer);
    EXPECT_EQ(flops(script, Phase::forward), 4096 * layer);
}

}  // namespace
}  // namespace stowage::layers::testing
