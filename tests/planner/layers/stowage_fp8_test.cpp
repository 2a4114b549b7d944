// Linears of stowage's own layers in FP8: what they save, move, cost and hold, and what they refuse.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/support.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::RecomputeModule;
using types::Scenario;
using Saves = std::vector<std::pair<std::string, std::int64_t>>;

Scenario shipped(const std::string& name) {
    return reader::read_scenario(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/" + name + ".yaml");
}

LayerScript script_of_kind(const Scenario& scenario, ScriptKind kind) {
    for (LayerScript& script : build_stage(scenario, 0).scripts)
        if (script.kind == kind) return std::move(script);
    return {};
}

LayerScript layer_of(const Scenario& scenario) { return script_of_kind(scenario, ScriptKind::dense_layer); }

Scenario recomputing(Scenario scenario, std::vector<RecomputeModule> modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

/// Name and bytes of what is not fp32.
Saves large_saves(const Scenario& scenario) {
    Saves saves;
    for (const SavedTensor& saved : layer_of(scenario).saved)
        if (saved.type != DataType::fp32) saves.emplace_back(saved.name, saved.bytes().count);
    return saves;
}

const Kernel& kernel_named(const LayerScript& script, const std::string& name) {
    const auto found = std::find_if(script.kernels.begin(), script.kernels.end(),
                                    [&](const Kernel& kernel) { return kernel.name == name; });
    EXPECT_NE(found, script.kernels.end()) << name;
    return *found;
}

/// Names of the kernels that compute this, in forward (or backward) order.
std::vector<std::string> kernels_of(const LayerScript& script, const std::vector<Step>& steps, Call call) {
    std::vector<std::string> names;
    for (const Step& step : steps) {
        if (step.kind != StepKind::kernel || script.kernels[step.detail].call.call != call) continue;
        names.push_back(script.kernels[step.detail].name);
    }
    return names;
}

// --------------------------------------------------------------------------------------------------------------- saves

// 640 tokens, h 384, qkv 1008, attention 336, fc1 2016: the inputs of qkv and fc1 as one byte an element.
TEST(StowageFp8, SavesAByteForEachElementOfTheInputsOfQkvAndFc1) {
    constexpr std::int64_t kToken = 2 * 640;
    EXPECT_EQ(large_saves(in_fp8(bare_stack())), (Saves{{"input", kToken * 384},
                                                        {"qkv_linear.input_fp8_transposed", 640 * 384},
                                                        {"qkv", kToken * 1008},
                                                        {"core_attn.output", kToken * 336},
                                                        {"residual.attention", kToken * 384},
                                                        {"mlp_fc1.input_fp8_transposed", 640 * 384},
                                                        {"mlp_fc1.output", kToken * 2016}}));
}

// Less than bf16 by a byte an element of two tensors, more by two fp32 numbers for each of four linears.
TEST(StowageFp8, SavesTheScalesOfEveryInput) {
    Scenario plain = in_fp8(bare_stack());
    const std::int64_t fp8 = saved_bytes(layer_of(plain)).count;
    plain.precision = types::Precision::bf16;
    EXPECT_EQ(fp8, saved_bytes(layer_of(plain)).count - 2 * 640 * 384 + 4 * 8);
}

// 4096 tokens of 4096: 32 MiB a hidden state in bf16, 16 MiB in FP8.
TEST(StowageFp8, MovesHalfAsMuchOfQkvLinear) {
    const LayerScript layer = layer_of(shipped("dense-8x4096-fp8"));
    constexpr std::int64_t kHidden = 32 << 20;
    constexpr std::int64_t kStatistics = 4 * 32 * 4096;
    const std::vector<std::pair<Module, std::int64_t>> expected{{Module::attn_norm, kHidden},
                                                                {Module::qkv_linear, kHidden / 2},
                                                                {Module::core_attn, 3 * kHidden + kStatistics},
                                                                {Module::attn_proj, kHidden},
                                                                {Module::mlp_norm, kHidden}};
    std::vector<std::pair<Module, std::int64_t>> copied;
    for (const TensorGroup& group : tensor_groups(layer)) {
        copied.emplace_back(group.module, group.copied.count);
        EXPECT_EQ(group.freed, group.copied);
    }
    EXPECT_EQ(copied, expected);
}

// A norm that is made again, or an MLP that begins with it, needs no copy; what attention leaves is saved for itself.
TEST(StowageFp8, SavesNoCopyOfWhatIsMadeAgain) {
    using M = RecomputeModule;
    const auto copies = [](const std::vector<M>& modules) {
        std::vector<std::string> names;
        for (const auto& [name, bytes] : large_saves(recomputing(in_fp8(bare_stack()), modules)))
            if (name.find("fp8") != std::string::npos) names.push_back(name);
        return names;
    };
    EXPECT_EQ(copies({M::layernorm}), (std::vector<std::string>{}));
    EXPECT_EQ(copies({M::mlp}), (std::vector<std::string>{"qkv_linear.input_fp8_transposed"}));
    EXPECT_EQ(copies({M::core_attn}),
              (std::vector<std::string>{"qkv_linear.input_fp8_transposed", "mlp_fc1.input_fp8_transposed"}));
}

// ------------------------------------------------------------------------------------------------------------- kernels

TEST(StowageFp8, IsThatOfTheLinearsOfLayers) {
    for (const Kernel& kernel : layer_of(in_fp8(plain_gpt())).kernels)
        EXPECT_EQ(kernel.fp8, kernel.kind == KernelClass::gemm) << kernel.name;
    for (const Kernel& kernel : script_of_kind(in_fp8(plain_gpt()), ScriptKind::head).kernels)
        EXPECT_FALSE(kernel.fp8) << kernel.name;
}

TEST(StowageFp8, DoesTheOperationsOfBf16) {
    const auto work = [](const std::string& name) {
        const LayerScript layer = layer_of(shipped(name));
        return std::pair{flops(layer, Phase::forward), flops(layer, Phase::weight_gradient)};
    };
    EXPECT_EQ(work("dense-8x4096-fp8"), work("dense-8x4096"));
}

// qkv: 640 tokens of 384 in bf16 are read twice, and written as FP8 twice; the projection's input, 336, once. Gradients
// are written twice. Of a product, each factor has one byte an element and the result two.
TEST(StowageFp8, CountsWhatConversionsAndProductsMove) {
    const LayerScript layer = layer_of(in_fp8(bare_stack()));
    const auto traffic = [&](const char* name) { return kernel_named(layer, name).traffic.count; };
    EXPECT_EQ(traffic("qkv_linear.input_scale"), 2 * 640 * 384);
    EXPECT_EQ(traffic("qkv_linear.input_to_fp8"), 4 * 640 * 384);
    EXPECT_EQ(traffic("attn_proj.input_to_fp8"), 3 * 640 * 336);
    EXPECT_EQ(traffic("attn_proj.saved_input_to_fp8"), 3 * 640 * 336);
    EXPECT_EQ(traffic("qkv_linear.gradient_to_fp8"), 4 * 640 * 1008);
    EXPECT_EQ(traffic("qkv_linear.forward"), (640 + 1008) * 384 + 2 * 640 * 1008);
    EXPECT_EQ(traffic("qkv_linear.dgrad"), (640 + 384) * 1008 + 2 * 640 * 384);
    EXPECT_EQ(traffic("qkv_linear.wgrad"), 640 * (1008 + 384) + 2 * 4 * 1008 * 384);  // fp32 gradients
}

// Each input is measured in the forward alone, also where an MLP runs again; gradients in the backward.
TEST(StowageFp8, MeasuresEveryTensorOnce) {
    using Names = std::vector<std::string>;
    for (const std::vector<RecomputeModule>& modules :
         {std::vector<RecomputeModule>{}, {RecomputeModule::mlp, RecomputeModule::layernorm}}) {
        const LayerScript layer = layer_of(recomputing(in_fp8(bare_stack()), modules));
        EXPECT_EQ(
            kernels_of(layer, layer.forward, Call::fp8_scale),
            (Names{"qkv_linear.input_scale", "attn_proj.input_scale", "mlp_fc1.input_scale", "mlp_fc2.input_scale"}));
        EXPECT_EQ(kernels_of(layer, layer.backward, Call::fp8_scale),
                  (Names{"mlp_fc2.gradient_scale", "mlp_fc1.gradient_scale", "attn_proj.gradient_scale",
                         "qkv_linear.gradient_scale"}));
    }
}

TEST(StowageFp8, RoundsGradientsToTheWiderFormat) {
    for (const Kernel& kernel : layer_of(in_fp8(bare_stack())).kernels) {
        if (kernel.call.call != Call::fp8_scale && kernel.call.call != Call::fp8_quantize) continue;
        EXPECT_EQ(kernel.call.sizes.e5m2, kernel.name.find("gradient") != std::string::npos) << kernel.name;
    }
}

// ------------------------------------------------------------------------------------------------------------- weights

// A layer's linears have 4096 (12288 + 4096 + 28672 + 14336) = 243,269,632 elements, a multiple of 256 each; 256 bytes
// for the scales of each.
TEST(StowageFp8, HoldsTwoCopiesOfEveryWeight) {
    const StageLayers stage = build_stage(shipped("dense-8x4096-fp8"), 0);
    ASSERT_EQ(stage.states.size(), 5U);
    EXPECT_EQ(stage.states[4].name, "FP8 weights");
    EXPECT_EQ(stage.states[4].bytes, Bytes{8 * (2 * 243'269'632LL + 4 * 256)});
    EXPECT_EQ(stage.states[4].role, StowageState::fp8_weights);
    EXPECT_EQ(rank_parameters(stage), 1'946'222'592) << "copies are no parameters";
    EXPECT_TRUE(build_stage(shipped("dense-8x4096"), 0).fp8_places.empty());
}

// Weights of the bare stack: 1008 x 384 = 387,072 = 1512 x 256 elements.
TEST(StowageFp8, PlacesCopiesBehindTheirScales) {
    const StageLayers stage = build_stage(in_fp8(bare_stack()), 0);
    const std::vector<Fp8Place>& places = stage.fp8_places.at(0).at(1);  // the first layer behind the input
    ASSERT_EQ(places.size(), 6U);
    EXPECT_EQ(places[0], Fp8Place{}) << "a norm's weight";
    EXPECT_EQ(places[1], (Fp8Place{0, 256, 256 + 387'072}));
    EXPECT_EQ(places[2].scales, 256 + 2 * 387'072);
    EXPECT_EQ(stage.fp8_places[0][2][1].scales, stage.fp8_places[0][1][5].transposed + 1008 * 384)
        << "the next layer's begin where fc2's end";
}

TEST(StowageFp8, PreparesTheWeightsOfLayers) {
    const StageLayers stage = build_stage(in_fp8(plain_gpt()), 0);
    ASSERT_EQ(stage.preparations.size(), stage.scripts.size());
    for (std::size_t i = 0; i < stage.scripts.size(); ++i)
        EXPECT_EQ(stage.preparations[i].has_value(), stage.scripts[i].kind == ScriptKind::dense_layer);
    const LayerScript& preparation = *stage.preparations[1];
    ASSERT_EQ(preparation.kernels.size(), 8U);
    EXPECT_EQ(kernel_named(preparation, "mlp_fc1.weight_scale").traffic, Bytes{2 * 1008 * 384});  // GELU: not doubled
    EXPECT_EQ(kernel_named(preparation, "mlp_fc1.weight_to_fp8").traffic, Bytes{4 * 1008 * 384});
    EXPECT_TRUE(build_stage(plain_gpt(), 0).preparations.empty());
}

// ------------------------------------------------------------------------------------------------------------ refusals

std::string refusal(const Scenario& scenario) {
    try {
        build_stage(scenario, 0);
    } catch (const types::UnsupportedError& error) {
        return error.what();
    }
    return {};
}

Scenario with_experts(Scenario scenario) {
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 2;
    scenario.model.moe_ffn_hidden_size = 208;
    return scenario;
}

TEST(StowageFp8, NamesWhatItLacks) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"precision: fp8_delayed", [](Scenario& s) { s.precision = types::Precision::fp8_delayed; }},
        {"precision: fp8_blockwise", [](Scenario& s) { s.precision = types::Precision::fp8_blockwise; }},
        {"precision: mxfp8", [](Scenario& s) { s.precision = types::Precision::mxfp8; }},
        {"precision: fp8_tensorwise with experts", [](Scenario& s) { s = with_experts(s); }},
        {"precision: fp8_tensorwise with multi-latent attention", [](Scenario& s) { s = in_fp8(latent_gpt()); }},
        {"precision: fp8_tensorwise under tensor parallelism",
         [](Scenario& s) {
             s = in_fp8(tensor_slice(2, true));
             s.model.ffn_hidden_size = 1088;
         }},
        {"precision: fp8_tensorwise with 632 tokens of a microbatch", [](Scenario& s) { s.batch.seq_length = 316; }},
        {"precision: fp8_tensorwise with 392 elements of a token", [](Scenario& s) { s.model.hidden_size = 392; }},
        {"precision: fp8_tensorwise with 1000 elements of a token's feed-forward part",
         [](Scenario& s) { s.model.ffn_hidden_size = 1000; }},
        {"fp8_param_gather: true", [](Scenario& s) { s.optimizer.fp8_param_gather = true; }},
    };
    ASSERT_EQ(refusal(in_fp8(bare_stack())), "");
    for (const auto& [feature, change] : cases) {
        Scenario scenario = in_fp8(bare_stack());
        change(scenario);
        EXPECT_EQ(refusal(scenario), "not supported by the layers of implementation stowage:\n  - " + feature);
    }
}

}  // namespace
}  // namespace stowage::layers::testing
