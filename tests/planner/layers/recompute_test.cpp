#include <gtest/gtest.h>

#include <set>
#include <string>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::RecomputeModule;
using types::Scenario;
using namespace types::literals;

LayerScript with(Scenario scenario, std::vector<RecomputeModule> modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return script_of(scenario, ScriptKind::dense_layer);
}

LayerScript without(const Scenario& scenario) { return script_of(scenario, ScriptKind::dense_layer); }

Bytes copied(const LayerScript& script, Module module) {
    for (const TensorGroup& group : tensor_groups(script))
        if (group.module == module) return group.copied;
    return Bytes{-1};
}

Bytes freed(const LayerScript& script, Module module) {
    for (const TensorGroup& group : tensor_groups(script))
        if (group.module == module) return group.freed;
    return Bytes{-1};
}

std::set<std::string> recomputed_kernels(const LayerScript& script) {
    std::set<std::string> names;
    for (const Step& step : script.backward)
        if (step.kind == StepKind::kernel && step.phase == Phase::recompute)
            names.insert(script.kernels[step.detail].name);
    return names;
}

// The checkpoint saves query, key and value, the projection the output; only the statistics go: 4 * 128 * 4096 = 2 MiB.
TEST(Recompute, OfCoreAttentionSavesTheStatisticsOnly) {
    const LayerScript layer = with(deepseek_v3_dense(), {RecomputeModule::core_attn});
    EXPECT_EQ(saved_bytes(without(deepseek_v3_dense())) - saved_bytes(layer), 2_MiB);
    const double pairs = 4096.0 * 4096.0 / 2;
    EXPECT_EQ(flops(layer, Phase::recompute), 2 * pairs * 128 * (192 + 128));
}

// With grouped queries the value is a view: the checkpoint keeps the packed projection, 80 heads * 128 * 4096 * 2 = 80
// MiB, where attention kept a copy of the value, 8 MiB, and the statistics, 64 * 4096 * 4 = 1 MiB.
TEST(Recompute, OfCoreAttentionKeepsThePackedProjection) {
    const LayerScript layer = with(llama3_70b(), {RecomputeModule::core_attn});
    EXPECT_EQ(saved_bytes(layer) - saved_bytes(without(llama3_70b())), 80_MiB - 9_MiB);
}

// Megatron's checkpointed path opens no offload group.
TEST(Recompute, OfCoreAttentionLeavesNoGroupToOffload) {
    for (const Scenario& scenario : {llama3_70b(), deepseek_v3_dense()}) {
        EXPECT_EQ(copied(with(scenario, {RecomputeModule::core_attn}), Module::core_attn), Bytes{-1});
        EXPECT_GT(copied(without(scenario), Module::core_attn), Bytes{0});
    }
}

// The norm's output, 4096 * 7168 * 2 = 56 MiB, and its statistics, 4 * 4096 bytes, go. The down projections' group
// still copies the output twice before it is emptied, and frees nothing of it.
TEST(Recompute, OfTheNormDropsItsOutput) {
    const LayerScript layer = with(deepseek_v3_dense(), {RecomputeModule::layernorm});
    const LayerScript plain = without(deepseek_v3_dense());
    EXPECT_EQ(saved_bytes(plain) - saved_bytes(layer), 56_MiB + Bytes{4 * 4096});
    EXPECT_EQ(copied(layer, Module::attn_norm), 56_MiB);
    EXPECT_EQ(copied(layer, Module::qkv_linear), copied(plain, Module::qkv_linear));
    EXPECT_EQ(freed(plain, Module::qkv_linear) - freed(layer, Module::qkv_linear), 56_MiB);
    EXPECT_EQ(recomputed_kernels(layer), std::set<std::string>{"attn_norm.forward"});
}

// Norms fused into linears have no output of their own to drop.
TEST(Recompute, OfTheNormChangesNothingWhereItIsFused) {
    EXPECT_EQ(saved_bytes(with(llama3_70b(), {RecomputeModule::layernorm})), saved_bytes(without(llama3_70b())));
}

// Gone: query, key, value 192 + 192 + 128 MiB; the latents' normed copies 12 + 4 MiB with 2 * 4 * 4096 bytes of
// statistics; the dense copy of the key-value latent, 4 MiB, for which kv_down's whole output waits, 4096 * 576 * 2 =
// 4.5 MiB. The query latent waits as before.
TEST(Recompute, OfTheUpProjectionsKeepsLatentsOnly) {
    const LayerScript layer = with(deepseek_v3_dense(), {RecomputeModule::mla_up_proj});
    const Bytes less = saved_bytes(without(deepseek_v3_dense())) - saved_bytes(layer);
    EXPECT_EQ(less, 512_MiB + 16_MiB + Bytes{2 * 4 * 4096} + 4_MiB - Bytes{4096 * 576 * 2});
    EXPECT_EQ(flops(layer, Phase::recompute), 2.0 * 4096 * (37'748'736 + 16'777'216));
}

// The hooks see query, key and value before they are emptied: the group copies 640 MiB and the statistics all the same
// and frees the statistics alone.
TEST(Recompute, OfTheUpProjectionsDoesNotKeepTheirGroupFromCopying) {
    const LayerScript layer = with(deepseek_v3_dense(), {RecomputeModule::mla_up_proj});
    EXPECT_EQ(copied(layer, Module::core_attn), 640_MiB + 2_MiB);
    EXPECT_EQ(freed(layer, Module::core_attn), 2_MiB);
}

// What is made again comes before the group core_attn's backward: Megatron hangs it on the tensor behind the commit.
TEST(Recompute, OfTheUpProjectionsRunsBeforeAttentionsBackward) {
    const LayerScript layer = with(deepseek_v3_dense(), {RecomputeModule::mla_up_proj});
    bool attention_began = false;
    for (const Step& step : layer.backward) {
        if (step.kind == StepKind::commit && step.module == Module::core_attn) attention_began = true;
        if (step.phase == Phase::recompute) {
            EXPECT_FALSE(attention_began);
        }
    }
    EXPECT_TRUE(attention_began);
}

// Of all that attention saves, the output (by the projection), the layer's input, the latents and kv_down's output
// stay.
TEST(Recompute, OfEverythingLeavesInputLatentsAndOutput) {
    const LayerScript layer = with(
        deepseek_v3_dense(), {RecomputeModule::core_attn, RecomputeModule::layernorm, RecomputeModule::mla_up_proj});
    Bytes attention;
    std::set<Slot> counted;
    for (const SavedTensor& saved : layer.saved)
        if (!saved.name.starts_with("mlp") && saved.name != "residual.attention" &&
            !layer.tensors[index(saved.tensor)].persistent && counted.insert(saved.tensor).second)
            attention += layer.tensors[index(saved.tensor)].bytes();
    EXPECT_EQ(attention, 56_MiB + 12_MiB + Bytes{4096 * 576 * 2} + 128_MiB);
}

}  // namespace
}  // namespace stowage::layers::testing
