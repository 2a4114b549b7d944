#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layers/attention_backend.hpp"
#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Scenario on(int compute_capability, Scenario scenario) {
    scenario.hardware.node.device.compute_capability = compute_capability;
    return scenario;
}

Scenario deterministic(Scenario scenario) {
    scenario.env["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] = "0";
    return scenario;
}

LayerScript dense(const Scenario& scenario) {
    const StageLayers stage = build_megatron_stage(scenario, 0);
    return *std::find_if(stage.scripts.begin(), stage.scripts.end(),
                         [](const LayerScript& script) { return script.kind == ScriptKind::dense_layer; });
}

TEST(AttentionBackend, IsFusedFromHopperOnAndFlashBefore) {
    EXPECT_EQ(attention_backend(on(90, small_gpt())), AttentionBackend::fused);
    EXPECT_EQ(attention_backend(on(100, small_gpt())), AttentionBackend::fused);
    EXPECT_EQ(attention_backend(on(80, small_gpt())), AttentionBackend::flash);
}

// small_gpt has attention dropout.
TEST(AttentionBackend, IsFlashWhereCudnnsIsNotDeterministic) {
    EXPECT_EQ(attention_backend(on(90, deterministic(small_gpt()))), AttentionBackend::fused);
    EXPECT_EQ(attention_backend(on(100, deterministic(small_gpt()))), AttentionBackend::flash);
    Scenario without_dropout = deterministic(small_gpt());
    without_dropout.model.attention_dropout = 0;
    EXPECT_EQ(attention_backend(on(100, without_dropout)), AttentionBackend::fused);
    Scenario by_flag = small_gpt();
    by_flag.model.deterministic_mode = true;
    EXPECT_EQ(attention_backend(on(100, by_flag)), AttentionBackend::flash);
}

TEST(AttentionBackend, FollowsTheEnvironment) {
    Scenario scenario = on(90, small_gpt());
    scenario.env["NVTE_FUSED_ATTN"] = "0";
    EXPECT_EQ(attention_backend(scenario), AttentionBackend::flash);
    scenario.env["NVTE_FLASH_ATTN"] = "0";
    EXPECT_EQ(attention_backend(scenario), AttentionBackend::unfused);
}

TEST(AttentionBackend, OfMegatronsOwnLayersIsUnfused) {
    Scenario scenario = on(90, small_gpt());
    scenario.model.transformer_impl = types::TransformerImpl::local;
    EXPECT_EQ(attention_backend(scenario), AttentionBackend::unfused);
}

// 4096 tokens of 512, eight heads. Norms 2 (2 * 4,194,304 + 32,768) = 16,842,752; query, key, value 12,582,912; output
// twice 8,388,608 and 4 * 4096 * 8 = 131,072 of statistics; two dropout masks 4,194,304; MLP 2 * 2 * 4096 * 2048 =
// 33,554,432. cuDNN's kernels save one output.
TEST(FlashAttention, SavesItsOutputInTwoOrders) {
    EXPECT_EQ(saved_bytes(dense(on(80, small_gpt()))), Bytes{75'694'080});
    EXPECT_EQ(saved_bytes(dense(on(90, small_gpt()))), Bytes{75'694'080 - 4'194'304});
}

// With one sequence in the microbatch both orders are the same memory.
TEST(FlashAttention, SavesItsOutputOnceForOneSequence) {
    Scenario one = small_gpt();
    one.batch.micro_batch_size = 1;
    EXPECT_EQ(saved_bytes(dense(on(80, one))), saved_bytes(dense(on(90, one))));
}

}  // namespace
}  // namespace stowage::layers::testing
