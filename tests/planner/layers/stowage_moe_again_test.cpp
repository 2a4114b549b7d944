// Recomputation of the whole part with experts in stowage's own layers.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/layer_graphs.hpp"
#include "planner/layers/stage.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::RecomputeModule;
using types::Scenario;

Scenario recomputing(Scenario scenario, std::vector<RecomputeModule> modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

LayerScript moe_layer(const Scenario& scenario) {
    for (LayerScript& script : build_stage(scenario, 0).scripts)
        if (script.kind == ScriptKind::moe_layer) return std::move(script);
    return {};
}

std::vector<std::string> kernels_of(const std::vector<Step>& steps, const LayerScript& layer, Phase phase) {
    std::vector<std::string> names;
    for (const Step& step : steps)
        if (step.kind == StepKind::kernel && step.phase == phase) names.push_back(layer.kernels[step.detail].name);
    return names;
}

std::size_t waits(const std::vector<Step>& steps) {
    return static_cast<std::size_t>(
        std::count_if(steps.begin(), steps.end(), [](const Step& step) { return step.kind == StepKind::host_sync; }));
}

TEST(StowageMoeAgain, SavesTheInputAlone) {
    std::vector<std::string> saved;
    for (const SavedTensor& one : moe_layer(recomputing(moe_gpt(), {RecomputeModule::moe})).saved)
        saved.push_back(one.name);
    ASSERT_FALSE(saved.empty());
    EXPECT_EQ(saved.back(), "residual.attention");
    std::vector<Module> groups;
    for (const TensorGroup& group : tensor_groups(moe_layer(recomputing(moe_gpt(), {RecomputeModule::moe}))))
        groups.push_back(group.module);
    EXPECT_EQ(groups, (std::vector<Module>{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                                           Module::mlp_norm}));
}

// Up to fc1: its output is what the backward begins with. Counts were compared in the forward.
TEST(StowageMoeAgain, RunsAgainWhatTheBackwardReads) {
    const LayerScript layer = moe_layer(recomputing(moe_gpt(), {RecomputeModule::moe}));
    EXPECT_EQ(kernels_of(layer.backward, layer, Phase::recompute),
              (std::vector<std::string>{"mlp_norm.forward", "router.forward", "router.scores", "dispatch.places",
                                        "dispatch.permute", "expert_fc1.forward", "shared_expert.fc1.forward"}));
    EXPECT_EQ(waits(layer.forward), 1U);
    EXPECT_EQ(waits(layer.backward), 0U);
    const LayerScript plain = moe_layer(moe_gpt());
    EXPECT_EQ(kernels_of(layer.forward, layer, Phase::forward), kernels_of(plain.forward, plain, Phase::forward));
}

// Tokens travel to the experts once more, with their weights.
TEST(StowageMoeAgain, SendsTokensAgain) {
    std::size_t sent = 0;
    for (const Collective& collective : moe_layer(recomputing(moe_slice(), {RecomputeModule::moe})).collectives)
        sent += collective.name.starts_with("dispatch.all_to_all") ? 1 : 0;
    EXPECT_EQ(sent, 4U);
}

TEST(StowageMoeAgain, LeavesNothingBehindAndUsesNothingFreed) {
    using M = RecomputeModule;
    for (const Scenario& scenario : {moe_gpt(), moe_slice(), predicting_gpt()})
        for (const std::vector<M>& modules :
             {std::vector{M::moe}, {M::moe, M::layernorm}, {M::moe, M::shared_experts, M::moe_act, M::core_attn}}) {
            const StageLayers stage = build_stage(recomputing(scenario, modules), 0);
            Replay replay(stage);
            replay.forward();
            replay.backward();
            EXPECT_TRUE(replay.faults().empty()) << replay.faults().front();
            EXPECT_EQ(replay.live(), Bytes{0}) << replay.alive().front();
        }
}

// A graph does not end inside of what runs again: listed or not, the router stays outside.
TEST(StowageMoeAgain, IsCapturedUpToTheMixer) {
    types::CudaGraph graph;
    graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    graph.cuda_graph_modules = {types::CudaGraphModule::attn};
    const LayerScript layer = moe_layer(recomputing(moe_gpt(), {RecomputeModule::moe}));
    const auto attention = layer_graphs(layer, graph);
    graph.cuda_graph_modules.push_back(types::CudaGraphModule::moe_router);
    const auto router = layer_graphs(layer, graph);
    ASSERT_TRUE(attention && router);
    EXPECT_EQ(router->forward, attention->forward);
    EXPECT_EQ(router->backward, attention->backward);
}

}  // namespace
}  // namespace stowage::layers::testing
