#include "planner/layers/layer_graphs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/scenarios.hpp"

// Which kernels of a layer its graph holds, by part, for every scope; the backward is the forward's mirror image.

namespace stowage::layers::testing {
namespace {

using types::CudaGraph;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::FeedForward;
using types::Mixer;
using types::Scenario;
using types::TokenDispatcher;
using Parts = std::set<Part>;
using Scope = std::vector<CudaGraphModule>;

constexpr auto kAttn = CudaGraphModule::attn;
constexpr auto kMlp = CudaGraphModule::mlp;
constexpr auto kMoe = CudaGraphModule::moe;
constexpr auto kRouter = CudaGraphModule::moe_router;
constexpr auto kPreprocess = CudaGraphModule::moe_preprocess;
constexpr auto kMamba = CudaGraphModule::mamba;

CudaGraph graph(Scope scope, CudaGraphImpl impl = CudaGraphImpl::transformer_engine) {
    CudaGraph result;
    result.cuda_graph_impl = impl;
    result.cuda_graph_modules = std::move(scope);
    return result;
}

/// Work on the device or between ranks.
bool works(const Step& step) { return step.kind == StepKind::kernel || step.kind == StepKind::collective; }

Parts parts_in(const std::vector<Step>& steps, const StepRange& range) {
    Parts parts;
    for (std::size_t i = range.begin; i < range.end; ++i)
        if (works(steps[i])) parts.insert(steps[i].part);
    return parts;
}

/// The parts with work inside the forward's graph; the backward's must be the same, and neither may split a part
/// that has no edge inside.
Parts captured(const LayerScript& script, const CudaGraph& graph) {
    const auto graphs = layer_graphs(script, graph);
    if (!graphs) return {};
    Parts forward = parts_in(script.forward, graphs->forward);
    Parts backward = parts_in(script.backward, graphs->backward);
    for (Parts* parts : {&forward, &backward}) parts->erase(Part::residual);  // its gradients are added elsewhere
    EXPECT_EQ(forward, backward);
    return forward;
}

Parts all(const LayerScript& script) {
    Parts parts = parts_in(script.forward, {0, script.forward.size()});
    parts.erase(Part::residual);
    return parts;
}

Parts united(Parts left, const Parts& right) {
    left.insert(right.begin(), right.end());
    return left;
}

Parts without(Parts left, const Parts& right) {
    for (const Part part : right) left.erase(part);
    return left;
}

// ----------------------------------------------------------------------------------------------------------- the
// layers

Scenario moe_scenario(TokenDispatcher dispatcher = TokenDispatcher::alltoall) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.parallel.data_parallel_size = 4;
    scenario.parallel.moe_token_dispatcher_type = dispatcher;
    scenario.batch.global_batch_size = 4;
    return scenario;
}
Scenario with_shared(Scenario scenario, bool overlapped = false) {
    scenario.model.moe_shared_expert_intermediate_size = 512;
    scenario.parallel.moe_shared_expert_overlap = overlapped;
    return scenario;
}
Scenario latent_moe() {
    Scenario scenario = deepseek_v3_dense();
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 2;
    scenario.model.moe_ffn_hidden_size = 512;
    scenario.model.moe_layer_freq.assign(61, true);
    return scenario;
}
Scenario with_latent_experts(Scenario scenario) {
    scenario.model.moe_latent_size = 256;
    return scenario;
}

LayerScript moe(const Scenario& scenario) { return script_of(scenario, ScriptKind::moe_layer); }

Scenario hybrid() {
    Scenario scenario = qwen3_30b_a3b();
    scenario.model =
        reader::read_model(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios/models/nemotron3-nano-30b-a3b.yaml");
    scenario.parallel = {};
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 64, .seq_length = 8192};
    return scenario;
}
Scenario delta_net() {
    Scenario scenario = hybrid();
    scenario.model =
        reader::read_model(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios/models/qwen3-next-80b-a3b.yaml");
    return scenario;
}

LayerScript layer_of(const Scenario& scenario, const LayerTraits& traits) {
    return transformer_layer(dimensions_of(scenario), scenario, traits);
}

const Parts kAttentionParts{Part::attn_norm, Part::qkv_linear, Part::rotary, Part::core_attn, Part::attn_proj};

// --------------------------------------------------------------------------------------------------------------- dense

TEST(LayerGraphs, OfADenseLayer) {
    const LayerScript layer = script_of(llama3_70b(), ScriptKind::dense_layer);
    const Parts mlp = without(all(layer), kAttentionParts);
    EXPECT_TRUE(mlp.contains(Part::mlp_fc1));
    EXPECT_TRUE(mlp.contains(Part::mlp_fc2));
    EXPECT_EQ(captured(layer, graph({})), all(layer));
    EXPECT_EQ(captured(layer, graph({kAttn})), kAttentionParts);
    EXPECT_EQ(captured(layer, graph({kMlp})), mlp);
    EXPECT_EQ(captured(layer, graph({kAttn, kMlp})), all(layer));
    EXPECT_EQ(captured(layer, graph({kAttn, kRouter, kPreprocess})), kAttentionParts);
    for (const Scope& scope : {Scope{kRouter}, {kMoe}, {kMamba}, {kRouter, kPreprocess}})
        EXPECT_FALSE(layer_graphs(layer, graph(scope)));
}

TEST(LayerGraphs, OfADenseLayerWithLatentAttention) {
    const LayerScript layer = script_of(deepseek_v3_dense(), ScriptKind::dense_layer);
    EXPECT_EQ(captured(layer, graph({kAttn})), kAttentionParts);
    EXPECT_EQ(captured(layer, graph({kMlp})), without(all(layer), kAttentionParts));
    EXPECT_EQ(captured(layer, graph({})), all(layer));
}

// ------------------------------------------------------------------------------------------------------------- experts

struct MoeCase {
    std::string name;
    Scenario scenario;
    Parts router;      ///< what moe_router adds
    Parts preprocess;  ///< what moe_preprocess adds to that
};

std::vector<MoeCase> moe_cases() {
    const Parts router{Part::mlp_norm, Part::router};
    const Parts permutation{Part::dispatch};
    const Parts none;
    const Parts shared{Part::shared_expert};
    const Parts latent{Part::latent, Part::dispatch};
    const Scenario flex = moe_scenario(TokenDispatcher::flex);
    return {{"alltoall", moe_scenario(), router, permutation},
            {"flex", flex, router, none},  // the exchange is one with the permutation
            {"shared expert", with_shared(moe_scenario()), united(router, shared), permutation},
            {"shared expert, flex", with_shared(flex), united(router, shared), none},
            {"shared expert beside the dispatch", with_shared(moe_scenario(), true), router, permutation},
            {"latent attention", latent_moe(), router, permutation},
            {"experts of a latent width", with_latent_experts(moe_scenario()), router, latent},
            {"latent width, flex", with_latent_experts(flex), router, {Part::latent}}};
}

TEST(LayerGraphs, OfALayerWithExperts) {
    for (const MoeCase& expected : moe_cases()) {
        SCOPED_TRACE(expected.name);
        const LayerScript layer = moe(expected.scenario);
        const Parts with_router = united(kAttentionParts, expected.router);
        EXPECT_EQ(captured(layer, graph({kAttn})), kAttentionParts);
        EXPECT_EQ(captured(layer, graph({kAttn, kMlp})), kAttentionParts);
        EXPECT_EQ(captured(layer, graph({kRouter})), expected.router);
        EXPECT_EQ(captured(layer, graph({kAttn, kRouter})), with_router);
        EXPECT_EQ(captured(layer, graph({kRouter, kPreprocess})), united(expected.router, expected.preprocess));
        EXPECT_EQ(captured(layer, graph({kAttn, kRouter, kPreprocess})), united(with_router, expected.preprocess));
        EXPECT_EQ(captured(layer, graph({kMoe})), without(all(layer), kAttentionParts));
        EXPECT_EQ(captured(layer, graph({kAttn, kMoe})), all(layer));
        EXPECT_EQ(captured(layer, graph({})), all(layer));
        for (const Scope& scope : {Scope{kMlp}, {kMamba}}) EXPECT_FALSE(layer_graphs(layer, graph(scope)));
    }
}

// The host waits for the counts of tokens behind the permutation and before the exchange: no scope that leaves the
// experts outside holds a wait of the host, an exchange of tokens or a group of experts.
TEST(LayerGraphs, EndBeforeTheHostWaitsForTokenCounts) {
    for (const MoeCase& given : moe_cases()) {
        SCOPED_TRACE(given.name);
        const LayerScript layer = moe(given.scenario);
        const auto graphs = layer_graphs(layer, graph({kAttn, kRouter, kPreprocess}));
        ASSERT_TRUE(graphs);
        for (const auto& [steps, range] :
             {std::pair{&layer.forward, graphs->forward}, std::pair{&layer.backward, graphs->backward}})
            for (std::size_t i = range.begin; i < range.end; ++i) {
                const Step& step = (*steps)[i];
                EXPECT_NE(step.kind, StepKind::host_sync);
                EXPECT_FALSE(step.kind == StepKind::collective && is_token_exchange(layer.collectives[step.detail]));
                const bool hook = step.kind == StepKind::start || step.kind == StepKind::commit;
                EXPECT_FALSE(hook && (step.module == Module::expert_fc1 || step.module == Module::moe_act));
            }
    }
}

// Every group lies on one side: its start and its commit, in either direction, for every scope that leaves the experts
// outside and with the norms switched off that a boundary would cut.
TEST(LayerGraphs, NeverCutAGroup) {
    for (const MoeCase& given : moe_cases())
        for (const Scope& scope :
             {Scope{kAttn}, {kRouter}, {kAttn, kRouter}, {kRouter, kPreprocess}, {kAttn, kRouter, kPreprocess}}) {
            SCOPED_TRACE(given.name);
            const LayerScript layer = moe(given.scenario);
            const auto graphs = layer_graphs(layer, graph(scope));
            ASSERT_TRUE(graphs);
            const types::ModuleSet off = downgraded_modules(layer, graph(scope));
            for (const auto& [module, name] : types::enum_names<Module>()) {
                if (off.contains(module)) continue;
                std::set<bool> sides;
                for (std::size_t i = 0; i < layer.forward.size(); ++i)
                    if ((layer.forward[i].kind == StepKind::start || layer.forward[i].kind == StepKind::commit) &&
                        layer.forward[i].module == module)
                        sides.insert(graphs->forward.contains(i));
                for (std::size_t i = 0; i < layer.backward.size(); ++i)
                    if ((layer.backward[i].kind == StepKind::start || layer.backward[i].kind == StepKind::commit) &&
                        layer.backward[i].module == module)
                        sides.insert(graphs->backward.contains(i));
                EXPECT_LE(sides.size(), 1U) << name;
            }
        }
}

// A checkpoint around the whole expert part has no edge inside: of it nothing is captured but with `moe`.
TEST(LayerGraphs, DoNotEndInsideACheckpoint) {
    Scenario scenario = moe_scenario();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::moe};
    const LayerScript layer = moe(scenario);
    EXPECT_EQ(captured(layer, graph({kAttn, kRouter})), kAttentionParts);
    EXPECT_FALSE(layer_graphs(layer, graph({kRouter})));
}

// --------------------------------------------------------------------------------------------------------------
// hybrids

// A layer of one half is captured whole, its last variables included, so that its output is the graph's.
TEST(LayerGraphs, OfLayersOfOneHalf) {
    const Scenario scenario = hybrid();
    const LayerScript mamba = layer_of(scenario, {Mixer::mamba, FeedForward::none, false});
    const LayerScript attention = layer_of(scenario, {Mixer::attention, FeedForward::none, false});
    const LayerScript experts = layer_of(scenario, {Mixer::none, FeedForward::moe, false});
    for (const auto& [layer, scope] :
         {std::pair{&mamba, Scope{kMamba}}, std::pair{&attention, Scope{kAttn}}, std::pair{&experts, Scope{kMoe}}}) {
        const auto graphs = layer_graphs(*layer, graph(scope));
        ASSERT_TRUE(graphs) << layer->name;
        EXPECT_EQ(graphs->forward, (StepRange{0, layer->forward.size()})) << layer->name;
        EXPECT_EQ(graphs->backward, (StepRange{0, layer->backward.size()})) << layer->name;
        EXPECT_TRUE(graphs->takes_input);
    }
    EXPECT_FALSE(layer_graphs(mamba, graph({kAttn})));
    EXPECT_FALSE(layer_graphs(attention, graph({kMamba, kRouter})));
    EXPECT_FALSE(layer_graphs(experts, graph({kAttn, kMamba})));
    EXPECT_TRUE(captured(experts, graph({kAttn, kRouter})).contains(Part::router));
    EXPECT_FALSE(captured(experts, graph({kAttn, kRouter})).contains(Part::expert_fc1));
}

// A gated delta net is the attention of a transformer layer to Megatron, not a Mamba layer.
TEST(LayerGraphs, CaptureAGatedDeltaNetAsAttention) {
    const LayerScript layer = layer_of(delta_net(), {Mixer::gated_delta_net, FeedForward::moe, false});
    EXPECT_FALSE(is_mamba(layer));
    EXPECT_TRUE(captured(layer, graph({kAttn})).contains(Part::mixer_scan));
    EXPECT_FALSE(captured(layer, graph({kAttn})).contains(Part::router));
    EXPECT_FALSE(layer_graphs(layer, graph({kMamba})));
    EXPECT_TRUE(is_mamba(layer_of(hybrid(), {Mixer::mamba, FeedForward::none, false})));
}

// The mask is an input of graphs that hold the mixer of a transformer layer.
TEST(LayerGraphs, AreGivenAMaskWithAttention) {
    const auto mask = [](const LayerScript& layer, const Scope& scope) {
        return takes_mask(layer, *layer_graphs(layer, graph(scope)));
    };
    EXPECT_TRUE(mask(moe(moe_scenario()), {kAttn}));
    EXPECT_TRUE(mask(moe(moe_scenario()), {}));
    EXPECT_FALSE(mask(moe(moe_scenario()), {kRouter}));
    EXPECT_FALSE(mask(layer_of(hybrid(), {Mixer::mamba, FeedForward::none, false}), {kMamba}));
    EXPECT_FALSE(mask(layer_of(hybrid(), {Mixer::none, FeedForward::moe, false}), {kRouter}));
}

// Of a multi-token-prediction layer the transformer layer inside is captured, as one outside is; what combines and
// predicts around it stays eager.
TEST(LayerGraphs, OfTheLayerInsideAMultiTokenPrediction) {
    Scenario scenario = moe_scenario();
    scenario.model.mtp_num_layers = 1;
    const LayerScript layer = script_of(scenario, ScriptKind::mtp);
    const LayerScript outside = moe(scenario);
    for (const Scope& scope : {Scope{}, {kAttn}, {kRouter}, {kAttn, kRouter}, {kAttn, kRouter, kPreprocess}, {kMoe}})
        EXPECT_EQ(captured(layer, graph(scope)), captured(outside, graph(scope)));
    EXPECT_FALSE(captured(layer, graph({})).contains(Part::mtp));
    EXPECT_TRUE(all(layer).contains(Part::mtp));
}

// ------------------------------------------------------------------------------------------------ what else they
// depend on

TEST(LayerGraphs, AreCapturedByLayerOnlyWhereTheImplementationDoes) {
    const LayerScript layer = moe(moe_scenario());
    EXPECT_TRUE(layer_graphs(layer, graph({kAttn}, CudaGraphImpl::local)));
    EXPECT_FALSE(layer_graphs(layer, graph({kAttn}, CudaGraphImpl::none)));
    EXPECT_FALSE(layer_graphs(layer, graph({}, CudaGraphImpl::full_iteration)));
    EXPECT_FALSE(layer_graphs(script_of(moe_scenario(), ScriptKind::embedding), graph({})));
    EXPECT_FALSE(layer_graphs(script_of(moe_scenario(), ScriptKind::head), graph({})));
}

// Rule D7: attn listed, Transformer Engine; whichever part the layer's own graph holds.
TEST(LayerGraphs, PlantHooksWhereAttentionIsListed) {
    const LayerScript layer = moe(moe_scenario());
    EXPECT_TRUE(layer_graphs(layer, graph({kAttn}))->hooks);
    EXPECT_TRUE(layer_graphs(layer, graph({kAttn, kRouter}))->hooks);
    EXPECT_FALSE(layer_graphs(layer, graph({kRouter}))->hooks);
    EXPECT_FALSE(layer_graphs(layer, graph({}))->hooks);
    EXPECT_FALSE(layer_graphs(layer, graph({kAttn}, CudaGraphImpl::local))->hooks);
    EXPECT_TRUE(
        layer_graphs(layer_of(hybrid(), {Mixer::none, FeedForward::moe, false}), graph({kAttn, kRouter}))->hooks);
    EXPECT_FALSE(
        layer_graphs(layer_of(hybrid(), {Mixer::mamba, FeedForward::none, false}), graph({kAttn, kMamba}))->hooks);
}

// Rules D1 to D5, whatever the implementation.
TEST(LayerGraphs, SwitchOffTheNormsAtTheirBoundary) {
    const LayerScript dense = script_of(deepseek_v3_dense(), ScriptKind::dense_layer);
    const LayerScript experts = moe(latent_moe());
    const types::ModuleSet attn_norm{Module::attn_norm};
    const types::ModuleSet mlp_norm{Module::mlp_norm};
    const types::ModuleSet both{Module::attn_norm, Module::mlp_norm};
    for (const CudaGraphImpl impl : {CudaGraphImpl::none, CudaGraphImpl::local, CudaGraphImpl::transformer_engine}) {
        EXPECT_EQ(downgraded_modules(dense, graph({}, impl)), types::ModuleSet{});
        EXPECT_EQ(downgraded_modules(experts, graph({}, impl)), types::ModuleSet{});
        EXPECT_EQ(downgraded_modules(dense, graph({kAttn}, impl)), both);
        EXPECT_EQ(downgraded_modules(dense, graph({kMlp}, impl)), mlp_norm);
        EXPECT_EQ(downgraded_modules(dense, graph({kAttn, kMlp}, impl)), attn_norm);
        EXPECT_EQ(downgraded_modules(dense, graph({kRouter}, impl)), types::ModuleSet{});
        EXPECT_EQ(downgraded_modules(experts, graph({kAttn}, impl)), both);
        EXPECT_EQ(downgraded_modules(experts, graph({kRouter}, impl)), mlp_norm);
        EXPECT_EQ(downgraded_modules(experts, graph({kMlp}, impl)), types::ModuleSet{});
    }
}

}  // namespace
}  // namespace stowage::layers::testing
