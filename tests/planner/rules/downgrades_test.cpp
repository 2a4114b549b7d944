#include "planner/rules/downgrades.hpp"

#include <gtest/gtest.h>

namespace stowage::rules {
namespace {

using types::CudaGraph;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Mixer;
using types::Model;
using types::Module;
using types::ModuleSet;
using types::Scenario;

/// Latent attention, so that both norms stand alone: a dense layer, then three with experts.
Model mixed_model() {
    Model model;
    model.num_layers = 4;
    model.num_experts = 4;
    model.moe_router_topk = 2;
    model.multi_latent_attention = true;
    model.moe_layer_freq = {false, true, true, true};
    return model;
}

CudaGraph graph(std::vector<CudaGraphModule> modules, CudaGraphImpl impl = CudaGraphImpl::transformer_engine) {
    return {.cuda_graph_impl = impl, .cuda_graph_modules = std::move(modules)};
}

constexpr ModuleSet kSeven{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                           Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
constexpr ModuleSet kAttention{Module::qkv_linear, Module::core_attn, Module::attn_proj};
constexpr ModuleSet kExperts{Module::expert_fc1, Module::moe_act};

ModuleSet united(ModuleSet left, ModuleSet right) {
    for (const Module module : right.list()) left.insert(module);
    return left;
}

TEST(LayerOffload, WithoutGraphsIsWhatTheLayerHas) {
    const LayerOffload experts = layer_offload(mixed_model(), {}, kSeven, 1);
    EXPECT_EQ(experts, (LayerOffload{.active = kSeven, .captured = {}, .plants_hooks = false}));
    // The norm before a dense MLP is part of its first linear.
    EXPECT_EQ(layer_offload(mixed_model(), {}, kSeven, 0).active, united(kAttention, {Module::attn_norm}));
}

TEST(LayerOffload, LosesTheNormsAtTheBoundaryOfAnAttentionGraph) {
    const LayerOffload layer = layer_offload(mixed_model(), graph({CudaGraphModule::attn}), kSeven, 1);
    EXPECT_EQ(layer.active, united(kAttention, kExperts));
    EXPECT_EQ(layer.captured, kAttention);
    EXPECT_TRUE(layer.plants_hooks);
}

TEST(LayerOffload, KeepsAttentionEagerBesideARouterGraph) {
    const LayerOffload layer = layer_offload(mixed_model(), graph({CudaGraphModule::moe_router}), kSeven, 1);
    EXPECT_EQ(layer.active, united(united(kAttention, kExperts), {Module::attn_norm}));
    EXPECT_EQ(layer.captured, ModuleSet{});
    EXPECT_FALSE(layer.plants_hooks);
}

TEST(LayerOffload, NeverCapturesExperts) {
    const auto modules = {CudaGraphModule::attn, CudaGraphModule::moe_router, CudaGraphModule::moe_preprocess};
    const LayerOffload layer = layer_offload(mixed_model(), graph(modules), kExperts, 1);
    EXPECT_EQ(layer, (LayerOffload{.active = kExperts, .captured = {}, .plants_hooks = false}));
}

TEST(LayerOffload, OfAWholeLayerIsCapturedAndNeverJoined) {
    EXPECT_EQ(layer_offload(mixed_model(), graph({}), kSeven, 1),
              (LayerOffload{.active = kSeven, .captured = kSeven, .plants_hooks = false}));
}

TEST(LayerOffload, OfAWholeIterationIsCaptured) {
    EXPECT_EQ(layer_offload(mixed_model(), graph({}, CudaGraphImpl::full_iteration), kSeven, 1).captured, kSeven);
}

TEST(LayerOffload, FollowsTheListedModulesWhereNothingIsCaptured) {
    const LayerOffload layer =
        layer_offload(mixed_model(), graph({CudaGraphModule::attn}, CudaGraphImpl::none), kSeven, 1);
    EXPECT_FALSE(layer.active.contains(Module::attn_norm));
    EXPECT_EQ(layer.captured, ModuleSet{});
    EXPECT_TRUE(layer.plants_hooks);
}

// A hybrid's layer of experts alone asks what the whole model offloads, a Mamba layer asks nothing.
TEST(LayerOffload, PlantsHooksInAnyTransformerLayerThatListsAttention) {
    Model model = mixed_model();
    model.num_layers = 2;
    model.mixers = {Mixer::mamba, Mixer::none};
    model.feed_forward = {types::FeedForward::none, types::FeedForward::moe};
    const CudaGraph attention = graph({CudaGraphModule::attn, CudaGraphModule::moe_router});
    EXPECT_EQ(layer_offload(model, attention, kAttention, 0), LayerOffload{});
    EXPECT_EQ(layer_offload(model, attention, kAttention, 1), (LayerOffload{.plants_hooks = true}));
}

Scenario recomputing(std::vector<CudaGraphModule> modules) {
    Scenario scenario;
    scenario.model = mixed_model();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm};
    scenario.cuda_graph = graph(std::move(modules));
    return scenario;
}

TEST(MlpNormRecomputation, IsOfNormsThatStandAlone) {
    EXPECT_TRUE(recomputes_mlp_norm(recomputing({}), 1));
    EXPECT_FALSE(recomputes_mlp_norm(recomputing({}), 0));
    Scenario without = recomputing({});
    without.recompute.recompute_modules = {};
    EXPECT_FALSE(recomputes_mlp_norm(without, 1));
}

TEST(MlpNormRecomputation, StopsWhereTheRouterAloneIsCaptured) {
    Scenario scenario = recomputing({CudaGraphModule::moe_router});
    EXPECT_FALSE(recomputes_mlp_norm(scenario, 1));
    scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::local;
    EXPECT_TRUE(recomputes_mlp_norm(scenario, 1));
}

TEST(MlpNormRecomputation, GoesOnWhereTheDispatchRearrangesInsideTheGraph) {
    Scenario scenario = recomputing({CudaGraphModule::moe_router, CudaGraphModule::moe_preprocess});
    EXPECT_TRUE(recomputes_mlp_norm(scenario, 1));
    scenario.parallel.moe_token_dispatcher_type = types::TokenDispatcher::flex;
    EXPECT_FALSE(recomputes_mlp_norm(scenario, 1));
    scenario.model.moe_latent_size = 256;
    EXPECT_TRUE(recomputes_mlp_norm(scenario, 1));
    scenario.parallel.moe_shared_expert_overlap = true;
    EXPECT_TRUE(recomputes_mlp_norm(scenario, 1));
    scenario.model.moe_shared_expert_intermediate_size = 512;
    EXPECT_FALSE(recomputes_mlp_norm(scenario, 1));
}

}  // namespace
}  // namespace stowage::rules
