#include <gtest/gtest.h>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

constexpr double kTokens = 4096;

// Per token of a DeepSeek-V3 layer, in multiplications: query 1536 (7168 + 128 * 192 + 1); key and value 512 (7168 +
// 128
// * 256 + 1) + 7168 * 64; projection 16,384 * 7168; attention 4096 * 128 * (192 + 128) / 2; dense 3 * 7168 * 18,432.
TEST(ModelFlops, OfLatentAttentionAreMegatronsFormula) {
    Scenario scenario = deepseek_v3_dense();
    const double attention = 1536.0 * (7168 + 24'576 + 1) + 512.0 * (7168 + 32'768 + 1) + 7168.0 * 64 +
                             16'384.0 * 7168 + 4096.0 * 128 * 320 / 2;
    const double layer = attention + 3.0 * 7168 * 18'432;
    EXPECT_DOUBLE_EQ(model_flops_per_step(scenario), 6 * kTokens * (61 * layer + 7168.0 * 129'280));
    scenario.model.q_lora_rank = 0;
    const double direct = attention - 1536.0 * (7168 + 24'576 + 1) + 7168.0 * 24'576;
    EXPECT_DOUBLE_EQ(model_flops_per_step(scenario),
                     6 * kTokens * (61 * (direct + 3.0 * 7168 * 18'432) + 7168.0 * 129'280));
}

// One more layer, 3 h + 2 h^2, and a second output layer.
TEST(ModelFlops, OfMultiTokenPredictionAddALayerAndAnOutputLayer) {
    Scenario scenario = deepseek_v3_dense();
    const double before = model_flops_per_step(scenario);
    const double vocabulary = 7168.0 * 129'280;
    const double layer = (before / (6 * kTokens) - vocabulary) / 61;
    scenario.model.mtp_num_layers = 1;
    EXPECT_DOUBLE_EQ(model_flops_per_step(scenario),
                     before + 6 * kTokens * (layer + 3.0 * 7168 + 2.0 * 7168 * 7168 + vocabulary));
}

// A shared expert of width 512: 3 * 2048 * 512 a layer; a latent of 1024: experts 8 * 768 on 1024 instead of 2048, and
// 2 * 2048 * 1024 for the way there and back; 48 layers.
TEST(ModelFlops, OfExpertsCountSharedOnesAndLatents) {
    Scenario scenario = qwen3_30b_a3b();
    const double plain = model_flops_per_step(scenario);
    scenario.model.moe_shared_expert_intermediate_size = 512;
    const double shared = model_flops_per_step(scenario);
    EXPECT_DOUBLE_EQ(shared - plain, 6 * kTokens * 48 * 3 * 2048 * 512);
    scenario.model.moe_latent_size = 1024;
    EXPECT_DOUBLE_EQ(model_flops_per_step(scenario) - shared,
                     6 * kTokens * 48 * (2.0 * 2048 * 1024 - 3.0 * 8 * 768 * 1024));
}

// Half of 80 layers see 128 of 4096 tokens: 64 * 128 * (4096 - 128) multiplications less a token.
TEST(ModelFlops, OfWindowsCountWhatTheySee) {
    Scenario scenario = llama3_70b();
    const double plain = model_flops_per_step(scenario);
    scenario.model.window_size = 127;
    scenario.model.window_layers.assign(80, false);
    for (std::size_t layer = 0; layer < 80; layer += 2) scenario.model.window_layers[layer] = true;
    EXPECT_DOUBLE_EQ(plain - model_flops_per_step(scenario), 6 * kTokens * 40 * 8192 * (4096 - 128));
}

// The gate is as wide as the query.
TEST(ModelFlops, OfAnOutputGateAreThoseOfAQuery) {
    Scenario scenario = llama3_70b();
    const double plain = model_flops_per_step(scenario);
    scenario.model.attention_output_gate = true;
    EXPECT_DOUBLE_EQ(model_flops_per_step(scenario) - plain, 6 * kTokens * 80 * 8192 * 8192);
}

}  // namespace
}  // namespace stowage::layers::testing
