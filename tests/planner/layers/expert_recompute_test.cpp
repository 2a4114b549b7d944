#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/support.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

// Checkpoints of the feed-forward part: what stays, what runs again, and that nothing is lost or left behind.

namespace stowage::layers::testing {
namespace {

using types::FeedForward;
using types::RecomputeModule;
using types::Scenario;
using types::TokenDispatcher;
using Modules = std::vector<RecomputeModule>;

LayerScript layer_of(const Scenario& scenario, FeedForward kind) {
    return transformer_layer(dimensions_of(scenario), scenario, {types::Mixer::attention, kind, false});
}

LayerScript moe_of(const Scenario& scenario) { return layer_of(scenario, FeedForward::moe); }

Scenario recomputing(Scenario scenario, const Modules& modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = modules;
    return scenario;
}

/// Bytes that are no longer saved.
Bytes dropped(const Scenario& scenario, const Modules& modules, FeedForward kind = FeedForward::moe) {
    return saved_bytes(layer_of(scenario, kind)) - saved_bytes(layer_of(recomputing(scenario, modules), kind));
}

Scenario with_shared_expert() {
    Scenario scenario = qwen3_30b_a3b();
    scenario.model.moe_shared_expert_intermediate_size = 1024;
    return scenario;
}

int count(const std::vector<Step>& steps, StepKind kind) {
    int result = 0;
    for (const Step& step : steps) result += step.kind == kind ? 1 : 0;
    return result;
}

std::vector<std::string> collectives(const LayerScript& layer, const std::vector<Step>& steps) {
    std::vector<std::string> names;
    for (const Step& step : steps)
        if (step.kind == StepKind::collective) names.push_back(layer.collectives[step.detail].name);
    return names;
}

// Qwen3-30B-A3B: T = 4096, h 2048, N = 32,768 rows, gated width 768, E 128, top 8.

// The activation's output, 2 N 768.
TEST(ExpertRecompute, OfTheActivationDropsItsOutput) {
    EXPECT_EQ(dropped(qwen3_30b_a3b(), {RecomputeModule::moe_act}), Bytes{2 * 32'768 * 768});
    // Not gated, 4096 rows of width 4096: before the weights and after them.
    EXPECT_EQ(dropped(small_moe(), {RecomputeModule::moe_act}), Bytes{2 * 2 * 4096 * 4096});
}

// The group keeps fc1's output and the weights, and the second forward reads them while the group is there.
TEST(ExpertRecompute, OfTheActivationLeavesItsGroup) {
    const LayerScript plain = moe_of(qwen3_30b_a3b());
    const LayerScript layer = moe_of(recomputing(qwen3_30b_a3b(), {RecomputeModule::moe_act}));
    const auto bytes = [](const LayerScript& script) {
        for (const TensorGroup& group : tensor_groups(script))
            if (group.module == Module::moe_act) return group.copied;
        return Bytes{};
    };
    EXPECT_EQ(bytes(layer), bytes(plain));
    bool open = false;
    bool read = false;
    for (const Step& step : layer.backward) {
        const bool own = step.module == Module::moe_act;
        if (step.kind == StepKind::commit && own) open = true;
        if (step.kind == StepKind::start && own) open = false;
        const bool reads = step.kind == StepKind::read && layer.saved[index(step.saved)].name == "expert_fc1.output";
        if (reads) read = true;
        if (reads || (step.kind == StepKind::kernel && step.phase == Phase::recompute)) {
            EXPECT_TRUE(open);
        }
        if (step.kind == StepKind::kernel && step.phase == Phase::recompute) {
            EXPECT_TRUE(read);
        }
    }
    EXPECT_TRUE(read);
}

// Before fc2's backward the output is there twice: as the second forward made it and copied to where fc2 looks.
TEST(ExpertRecompute, OfTheActivationHoldsItsOutputTwice) {
    const LayerScript layer = moe_of(recomputing(qwen3_30b_a3b(), {RecomputeModule::moe_act}));
    std::vector<std::string> alive;
    for (const Step& step : layer.backward) {
        if (step.kind == StepKind::kernel && layer.kernels[step.detail].name == "expert_fc2.wgrad") break;
        if (step.kind == StepKind::allocate) alive.push_back(layer.tensors[index(step.slot)].name);
    }
    EXPECT_EQ(std::count(alive.begin(), alive.end(), "moe_act.output"), 1);
    EXPECT_EQ(std::count(alive.begin(), alive.end(), "moe_act.restored"), 1);
}

// The normed tokens 2 T h and the norm's statistics 4 T.
TEST(ExpertRecompute, OfTheNormKeepsItsInputOnly) {
    EXPECT_EQ(dropped(qwen3_30b_a3b(), {RecomputeModule::layernorm}), Bytes{2 * 4096 * 2048 + 4 * 4096});
    // A dense layer's norms are part of their linears.
    EXPECT_EQ(dropped(llama3_70b(), {RecomputeModule::layernorm}, FeedForward::dense), Bytes{0});
}

// Everything behind the norm but the normed tokens: router T E 8 + T 8 8, permutation 8 N + 5 T E, fc1 input 2 N h, fc1
// output 2 N 1536, weights 4 N, activation 2 N 768.
TEST(ExpertRecompute, OfTheWholePartKeepsTheNormedTokens) {
    constexpr std::int64_t kRows = 32'768;
    const Bytes expected{4096 * 128 * (8 + 5) + 4096 * 8 * 8 + kRows * (8 + 2 * 2048 + 2 * 1536 + 4 + 2 * 768)};
    EXPECT_EQ(dropped(qwen3_30b_a3b(), {RecomputeModule::moe}), expected);
    // With the norm recomputed as well not even those.
    EXPECT_EQ(dropped(qwen3_30b_a3b(), {RecomputeModule::moe, RecomputeModule::layernorm}),
              expected + Bytes{2 * 4096 * 2048 + 4 * 4096});
}

// All of the forward, dispatch, counts and the host's wait too, comes again before the backward's own collectives.
TEST(ExpertRecompute, OfTheWholePartDispatchesAgain) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.expert_model_parallel_size = 8;
    scenario.parallel.data_parallel_size = 8;
    const LayerScript plain = moe_of(scenario);
    const LayerScript layer = moe_of(recomputing(scenario, {RecomputeModule::moe}));
    std::vector<std::string> expected = collectives(plain, plain.forward);
    for (const std::string& name : collectives(plain, plain.backward)) expected.push_back(name);
    EXPECT_EQ(collectives(layer, layer.backward), expected);
    EXPECT_EQ(collectives(layer, layer.forward), collectives(plain, plain.forward));
    EXPECT_EQ(count(layer.backward, StepKind::host_sync), 1);
    // Two GEMMs of experts and the router's.
    const double experts = 2.0 * 32'768 * 2048 * (1536 + 768);
    EXPECT_EQ(flops(layer, Phase::recompute), experts + 2.0 * 4096 * 2048 * 128);
    EXPECT_EQ(flops(layer, Phase::backward), flops(plain, Phase::backward));
    EXPECT_EQ(flops(layer, Phase::weight_gradient), flops(plain, Phase::weight_gradient));
}

TEST(ExpertRecompute, OfTheWholePartHasNoGroupsInside) {
    const LayerScript layer = moe_of(recomputing(qwen3_30b_a3b(), {RecomputeModule::moe}));
    for (const TensorGroup& group : tensor_groups(layer)) {
        EXPECT_NE(group.module, Module::expert_fc1);
        EXPECT_NE(group.module, Module::moe_act);
    }
}

// Shared expert of width 1024: fc1's output 2 T 2048 and the activation's 2 T 1024; the normed tokens are saved anyway.
TEST(ExpertRecompute, OfSharedExpertsDropsTheirActivations) {
    const Scenario scenario = with_shared_expert();
    EXPECT_EQ(dropped(scenario, {RecomputeModule::shared_experts}), Bytes{2 * 4096 * 3 * 1024});
    const LayerScript layer = moe_of(recomputing(scenario, {RecomputeModule::shared_experts}));
    EXPECT_EQ(flops(layer, Phase::recompute), 2.0 * 4096 * 2048 * 3 * 1024);
}

// Llama-3-70B, T = 4096, h 8192, width 28,672: the normed input 2 T h, statistics 4 T, and 2 T (2 + 1) 28,672. The
// norm's input, the residual stream, is what the checkpoint keeps.
TEST(ExpertRecompute, OfADensePartKeepsTheResidualStream) {
    EXPECT_EQ(dropped(llama3_70b(), {RecomputeModule::mlp}, FeedForward::dense),
              Bytes{2 * 4096 * 8192 + 4 * 4096 + 2 * 4096 * 3 * 28'672});
    const LayerScript layer = layer_of(recomputing(llama3_70b(), {RecomputeModule::mlp}), FeedForward::dense);
    EXPECT_EQ(flops(layer, Phase::recompute), 2.0 * 4096 * 8192 * 3 * 28'672);
    // Layers with experts are left alone.
    EXPECT_EQ(dropped(qwen3_30b_a3b(), {RecomputeModule::mlp}), Bytes{0});
}

// ---------------------------------------------------------------------------------------------------- nothing is lost

struct Variant {
    std::string name;
    Scenario scenario;
};

/// Models: each feature of the part with experts alone, and what goes together.
std::vector<Variant> models() {
    std::vector<Variant> result{{"plain", qwen3_30b_a3b()}, {"gelu", small_moe()}, {"shared", with_shared_expert()}};
    const auto add = [&](const std::string& name, auto change) {
        Variant variant{name, with_shared_expert()};
        change(variant.scenario);
        result.push_back(variant);
    };
    add("gate", [](Scenario& s) { s.model.moe_shared_expert_gate = true; });
    add("overlap", [](Scenario& s) { s.parallel.moe_shared_expert_overlap = true; });
    add("overlapped gate", [](Scenario& s) {
        s.parallel.moe_shared_expert_overlap = true;
        s.model.moe_shared_expert_gate = true;
    });
    add("latent", [](Scenario& s) {
        s.model.moe_latent_size = 512;
        s.model.activation = types::Activation::squared_relu;
    });
    add("padded", [](Scenario& s) {
        s.model.moe_expert_capacity_factor = 1.25;
        s.model.moe_pad_expert_input_to_capacity = true;
    });
    add("capacity", [](Scenario& s) { s.model.moe_expert_capacity_factor = 0.75; });
    add("biases", [](Scenario& s) {
        s.model.moe_shared_expert_intermediate_size = 0;
        s.model.add_bias_linear = true;
        s.model.activation = types::Activation::quick_geglu;
    });
    add("biases, latent, LayerNorm, dropout", [](Scenario& s) {
        s.model.moe_shared_expert_intermediate_size = 0;
        s.model.moe_latent_size = 512;
        s.model.add_bias_linear = true;
        s.model.normalization = types::Normalization::LayerNorm;
        s.model.hidden_dropout = 0.1;
    });
    return result;
}

std::vector<Modules> recomputations() {
    using M = RecomputeModule;
    return {{},
            {M::moe_act},
            {M::layernorm},
            {M::moe},
            {M::shared_experts},
            {M::mlp},
            {M::layernorm, M::moe_act, M::shared_experts},
            {M::moe, M::layernorm, M::moe_act, M::shared_experts, M::mlp}};
}

/// Every model under every dispatcher, layout and recomputation that the layers take.
std::vector<Variant> grid() {
    struct Layout {
        std::int64_t tensor, expert, expert_tensor;
    };
    std::vector<Variant> result;
    for (const Variant& model : models())
        for (const auto dispatcher : {TokenDispatcher::alltoall, TokenDispatcher::allgather, TokenDispatcher::flex})
            for (const Layout& layout : {Layout{1, 1, 1}, Layout{1, 4, 1}, Layout{2, 2, 2}, Layout{4, 4, 1}})
                for (const Modules& modules : recomputations()) {
                    Variant variant{model.name, recomputing(model.scenario, modules)};
                    types::ParallelLayout& parallel = variant.scenario.parallel;
                    parallel.moe_token_dispatcher_type = dispatcher;
                    parallel.tensor_model_parallel_size = layout.tensor;
                    parallel.sequence_parallel = layout.tensor > 1;
                    parallel.expert_model_parallel_size = layout.expert;
                    parallel.expert_tensor_parallel_size = layout.expert_tensor;
                    parallel.data_parallel_size = 8;
                    if (unsupported_features(variant.scenario).empty()) result.push_back(variant);
                }
    return result;
}

void expect_sound(const LayerScript& layer, const std::string& name) {
    Replay replay(layer);
    replay.forward();
    const Bytes output = layer.tensors[index(kGradOutput)].bytes();
    EXPECT_EQ(replay.live(), saved_bytes(layer) + output) << name;
    replay.backward();
    for (const std::string& fault : replay.faults()) ADD_FAILURE() << name << ": " << fault;
    EXPECT_EQ(replay.live(), Bytes{0}) << name;
}

TEST(ExpertRecompute, LeavesNothingBehindAndUsesNothingFreed) {
    const std::vector<Variant> variants = grid();
    EXPECT_GT(variants.size(), 500U);
    for (const Variant& variant : variants) {
        expect_sound(moe_of(variant.scenario), variant.name);
        expect_sound(layer_of(variant.scenario, FeedForward::dense), variant.name);
    }
}

// Group by group forward and backward mirror each other under every checkpoint.
TEST(ExpertRecompute, KeepsTheOrderOfGroups) {
    for (const Variant& variant : grid()) {
        const LayerScript layer = moe_of(variant.scenario);
        std::vector<std::pair<StepKind, Module>> forward;
        std::vector<std::pair<StepKind, Module>> backward;
        for (const Step& step : layer.forward)
            if (step.kind == StepKind::start || step.kind == StepKind::commit)
                forward.emplace_back(step.kind, step.module);
        for (const Step& step : layer.backward)
            if (step.kind == StepKind::start || step.kind == StepKind::commit)
                backward.insert(backward.begin(), {step.kind, step.module});
        EXPECT_EQ(forward, backward) << variant.name;
    }
}

// FP8 of every kind, with rows that need padding and rows that do not.
TEST(ExpertRecompute, IsSoundInEveryPrecision) {
    using types::Precision;
    for (const auto precision :
         {Precision::fp8_delayed, Precision::fp8_tensorwise, Precision::fp8_blockwise, Precision::mxfp8})
        for (const Variant& model : models())
            for (const Modules& modules : recomputations())
                for (const std::int64_t sequence : {4096, 1000}) {
                    Scenario scenario = recomputing(model.scenario, modules);
                    scenario.precision = precision;
                    scenario.batch.seq_length = sequence;
                    scenario.parallel.expert_model_parallel_size = 4;
                    scenario.parallel.data_parallel_size = 4;
                    expect_sound(moe_of(scenario), model.name);
                }
}

}  // namespace
}  // namespace stowage::layers::testing
