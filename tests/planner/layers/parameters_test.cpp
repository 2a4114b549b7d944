#include <gtest/gtest.h>

#include <numeric>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

// Published totals, before vocabulary padding. By hand for Llama-3-70B:
//   layer: qkv (64 + 2*8) 128 * 8192 + out 8192 * 8192 + gated fc1 2 * 28672 * 8192 + fc2 28672 * 8192 + two norms 8192
//        = 83,886,080 + 67,108,864 + 469,762,048 + 234,881,024 + 16,384 = 855,654,400; x 80 = 68,452,352,000
//   embedding and output 2 * 128256 * 8192 = 2,101,346,304; final norm 8,192; sum 70,553,706,496.
TEST(Parameters, TotalOfLlama3_70BIsThePublishedOne) { EXPECT_EQ(model_parameters(llama3_70b()), 70'553'706'496); }
TEST(Parameters, TotalOfQwen3_30BIsThePublishedOne) { EXPECT_EQ(model_parameters(qwen3_30b_a3b()), 30'532'122'624); }
TEST(Parameters, TotalOfQwen3_235BIsThePublishedOne) {
    EXPECT_EQ(model_parameters(qwen3_235b_a22b()), 235'093'634'560);
}

TEST(Parameters, TotalDoesNotDependOnTheLayout) {
    Scenario dense = llama3_70b();
    dense.parallel.tensor_model_parallel_size = 8;
    dense.parallel.expert_tensor_parallel_size = 8;
    dense.parallel.pipeline_model_parallel_size = 4;
    EXPECT_EQ(model_parameters(dense), 70'553'706'496);
    Scenario moe = qwen3_30b_a3b();
    moe.parallel.tensor_model_parallel_size = 2;
    moe.parallel.expert_tensor_parallel_size = 2;
    moe.parallel.expert_model_parallel_size = 8;
    moe.parallel.pipeline_model_parallel_size = 4;
    moe.parallel.data_parallel_size = 8;
    moe.parallel.sequence_parallel = true;
    EXPECT_EQ(model_parameters(moe), 30'532'122'624);
}

TEST(Parameters, ASecondCopyOfATiedEmbeddingIsHeldButNotCounted) {
    Scenario scenario = small_gpt();
    const std::int64_t total = model_parameters(scenario);
    scenario.parallel.pipeline_model_parallel_size = 4;
    EXPECT_EQ(model_parameters(scenario), total);
    // Last stage: 3 layers of 3,152,384, final norm 1024, copy of the padded table 50304 * 512 = 25,755,648.
    EXPECT_EQ(rank_parameters(build_megatron_stage(scenario, 3)), 35'213'824);
}

TEST(Parameters, ARankHoldsItsPaddedShareOfTheVocabulary) {
    Scenario scenario = small_gpt();
    // 50257 rounds up to 50304 = 393 * 128 with one rank: 25,755,648 + positions 524,288 + 12 * 3,152,384 + 1024.
    EXPECT_EQ(rank_parameters(build_megatron_stage(scenario, 0)), 64'109'568);
    scenario.parallel.tensor_model_parallel_size = 4;
    // With four 50257 rounds up to 50688 = 99 * 512: table 12672 * 512 = 6,488,064. A layer's share:
    // qkv 384 * 512 + 384, out 128 * 512 + 512, fc1 512 * 512 + 512, fc2 512 * 512 + 512, norms 2048: 790,400.
    EXPECT_EQ(rank_parameters(build_megatron_stage(scenario, 0)), 6'488'064 + 524'288 + 12 * 790'400 + 1024);
}

TEST(Parameters, ExpertsAreSplitOverExpertRanks) {
    Scenario scenario = qwen3_235b_a22b();
    scenario.parallel.expert_model_parallel_size = 32;
    scenario.parallel.data_parallel_size = 32;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    std::int64_t experts = 0;
    for (const Parameter& parameter : layer.parameters)
        if (parameter.kind == ParameterKind::expert) experts += parameter.elements();
    // 128 / 32 = 4 experts of 3 * 1536 * 4096.
    EXPECT_EQ(experts, 4 * 3 * 1536 * 4096);
}

}  // namespace
}  // namespace stowage::layers::testing
