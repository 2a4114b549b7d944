#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/layers/layer_graphs.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "planner/rules/downgrades.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/scenarios.hpp"

// What the rules say of a layer from the model alone (which groups it has, which are switched off, which its graph
// holds, whether it plants hooks) against what its script and the graph cut out of it hold, for every scope.

namespace stowage::rules {
namespace {

using layers::LayerScript;
using layers::StepKind;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::Scenario;

constexpr ModuleSet kSeven{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                           Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
constexpr ModuleSet kAttention{Module::qkv_linear, Module::core_attn, Module::attn_proj};

Scenario latent_and_mixed() {
    Scenario scenario = layers::testing::deepseek_v3_dense();
    scenario.model.num_layers = 4;
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 2;
    scenario.model.moe_ffn_hidden_size = 512;
    scenario.model.moe_layer_freq = {false, true, false, true};
    return scenario;
}

Scenario grouped_queries() {
    Scenario scenario = layers::testing::qwen3_30b_a3b();
    scenario.model.num_layers = 2;
    scenario.model.moe_layer_freq = {false, true};
    return scenario;
}

Scenario with_model(const std::string& file) {
    Scenario scenario = layers::testing::qwen3_30b_a3b();
    scenario.model =
        reader::read_model(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios" / "models" / (file + ".yaml"));
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 64, .seq_length = 8192};
    return scenario;
}

ModuleSet common(ModuleSet left, ModuleSet right) {
    ModuleSet both;
    for (const Module module : left.list())
        if (right.contains(module)) both.insert(module);
    return both;
}

/// Modules whose hooks start in `range` of the forward.
ModuleSet groups_in(const LayerScript& script, const layers::StepRange& range) {
    ModuleSet modules;
    for (std::size_t i = range.begin; i < range.end; ++i)
        if (script.forward[i].kind == StepKind::start) modules.insert(script.forward[i].module);
    return modules;
}

LayerOffload from_script(const LayerScript& script, const types::CudaGraph& graph, ModuleSet requested) {
    LayerOffload result;
    const layers::StepRange whole{0, script.forward.size()};
    result.active = common(requested, groups_in(script, whole));
    for (const Module module : layers::downgraded_modules(script, graph).list()) result.active.erase(module);
    const auto graphs = layers::layer_graphs(script, graph);
    if (graph.cuda_graph_impl == CudaGraphImpl::full_iteration) result.captured = result.active;
    if (graphs) result.captured = common(result.active, groups_in(script, graphs->forward));
    result.plants_hooks = graphs && graphs->hooks && !common(requested, kAttention).empty();
    return result;
}

/// Every scope but those with `moe`, beside which offloading is refused.
std::vector<std::vector<CudaGraphModule>> scopes() {
    const std::vector<CudaGraphModule> parts{CudaGraphModule::attn, CudaGraphModule::mlp, CudaGraphModule::moe_router,
                                             CudaGraphModule::moe_preprocess, CudaGraphModule::mamba};
    std::vector<std::vector<CudaGraphModule>> all;
    for (unsigned mask = 0; mask < 1U << parts.size(); ++mask) {
        all.emplace_back();
        for (std::size_t i = 0; i < parts.size(); ++i)
            if ((mask >> i & 1U) != 0) all.back().push_back(parts[i]);
    }
    return all;
}

std::vector<ModuleSet> requests() {
    return {kSeven,
            kAttention,
            {Module::core_attn},
            {Module::expert_fc1, Module::moe_act},
            {Module::attn_norm, Module::mlp_norm}};
}

void check(const Scenario& scenario, std::int64_t layer) {
    const LayerScript script =
        layers::transformer_layer(layers::dimensions_of(scenario), scenario, layers::traits_of(scenario.model, layer));
    types::CudaGraph graph;
    for (const CudaGraphImpl impl :
         {CudaGraphImpl::none, CudaGraphImpl::local, CudaGraphImpl::transformer_engine, CudaGraphImpl::full_iteration})
        for (const auto& scope : scopes()) {
            if (impl == CudaGraphImpl::full_iteration && !scope.empty()) continue;
            graph.cuda_graph_impl = impl;
            graph.cuda_graph_modules = scope;
            for (const ModuleSet requested : requests()) {
                std::string text = script.name + ", " + std::string(types::name_of(impl)) + " [";
                for (const CudaGraphModule module : scope) text += std::string(types::name_of(module)) + " ";
                SCOPED_TRACE(text + "] {" + requested.joined() + "}");
                const LayerOffload said = layer_offload(scenario.model, graph, requested, layer);
                const LayerOffload found = from_script(script, graph, requested);
                EXPECT_EQ(said.active.joined(), found.active.joined());
                EXPECT_EQ(said.captured.joined(), found.captured.joined());
                // The rule speaks of the listed modules; only a captured layer is replayed.
                if (layers::layer_graphs(script, graph) && impl == CudaGraphImpl::transformer_engine) {
                    EXPECT_EQ(said.plants_hooks, found.plants_hooks);
                }
            }
        }
}

TEST(LayerOffload, AgreesWithTheScriptsAndTheirGraphs) {
    for (const Scenario& scenario : {latent_and_mixed(), grouped_queries()})
        for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer) check(scenario, layer);
}

// One layer of each kind: Mamba, attention and experts alone; a gated delta net with experts.
TEST(LayerOffload, AgreesWithTheScriptsOfHybrids) {
    for (const char* file : {"nemotron3-nano-30b-a3b", "qwen3-next-80b-a3b"}) {
        const Scenario scenario = with_model(file);
        std::vector<std::string> seen;
        for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer) {
            const std::string name = layers::name_of(layers::traits_of(scenario.model, layer));
            if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
            seen.push_back(name);
            check(scenario, layer);
        }
        EXPECT_GT(seen.size(), 1U);
    }
}

}  // namespace
}  // namespace stowage::rules
