#include "planner/rules/chunk_mismatch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/rules/downgrades.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::rules {
namespace {

using types::Module;

/// The order in which groups end inside a layer; attn_norm ends after the attention it encloses, mlp_norm after the
/// experts. Groups start in the order of the enumeration.
constexpr std::array<Module, types::kModuleCount> kCommitOrder = {
    Module::qkv_linear, Module::gdp_qkv,         Module::core_attn, Module::attn_proj, Module::attn_norm,
    Module::expert_fc1, Module::fused_group_mlp, Module::moe_act,   Module::mlp_norm,
};

/// The groups of one chunk of a stage, layer by layer in the order of their starts.
struct Group {
    Module module{};
    std::int64_t layer = 0;
    bool captured = false;  ///< in a graph of its layer, whose replay passes it over
    bool offload = true;
};
using Chunk = std::vector<Group>;

Chunk groups_of_stage(const types::Scenario& scenario, types::ModuleSet modules, std::int64_t first_layer,
                      std::int64_t layers) {
    Chunk chunk;
    // A checkpoint around the core attention never opens its group.
    if (scenario.recompute.selects(types::RecomputeModule::core_attn)) modules.erase(Module::core_attn);
    for (std::int64_t layer = first_layer; layer < first_layer + layers; ++layer) {
        const LayerOffload left = layer_offload(scenario.model, scenario.cuda_graph, modules, layer);
        for (const Module module : left.active.list())
            chunk.push_back({.module = module, .layer = layer, .captured = left.captured.contains(module)});
    }
    return chunk;
}

/// The last group of each name stays: by the static margin in the first chunk, by the last-group rule in any chunk
/// whose backward comes next.
void keep_last_of_each_name(Chunk& chunk) {
    types::ModuleSet seen;
    for (auto group = chunk.rbegin(); group != chunk.rend(); ++group) {
        if (!seen.contains(group->module)) group->offload = false;
        seen.insert(group->module);
    }
}

void keep_by_fraction(Chunk& chunk, double fraction) {
    std::int64_t eligible = 0;
    for (const Group& group : chunk) eligible += group.offload ? 1 : 0;
    auto kept = static_cast<std::int64_t>(static_cast<double>(eligible) * (1 - fraction));
    for (auto group = chunk.rbegin(); group != chunk.rend() && kept > 0; ++group) {
        if (!group->offload) continue;
        group->offload = false;
        --kept;
    }
}

/// Whether one of the `layer`'s groups is open while `module` ends: the norm that encloses its half of the layer.
bool inside_an_open_norm(std::span<const Group> layer, Module module) {
    const bool attention = module < Module::mlp_norm || module == Module::gdp_qkv;
    const Module norm = attention ? Module::attn_norm : Module::mlp_norm;
    return module != norm && std::any_of(layer.begin(), layer.end(), [&](const Group& g) { return g.module == norm; });
}

std::span<const Group> layer_at(const Chunk& chunk, std::size_t first) {
    std::size_t end = first;
    while (end < chunk.size() && chunk[end].layer == chunk[first].layer) ++end;
    return std::span(chunk).subspan(first, end - first);
}

/// Whether the chunk reaches a point where groups have ended, all of them stayed, none is open, and more follow.
bool jumps_too_early(const Chunk& chunk) {
    for (std::size_t ended = 0; ended < chunk.size();) {
        const std::span<const Group> layer = layer_at(chunk, ended);
        for (const Module module : kCommitOrder) {
            const auto group =
                std::find_if(layer.begin(), layer.end(), [&](const Group& g) { return g.module == module; });
            if (group == layer.end()) continue;
            if (group->offload) return false;  // its reload waits from here to the backward
            ++ended;
            if (ended < chunk.size() && !inside_an_open_norm(layer, module)) return true;
        }
    }
    return false;
}

/// The same in an eager step or a capture, and where graphs of layers are replayed.
bool jumps_in_some_step(Chunk chunk, types::CudaGraphImpl impl) {
    if (jumps_too_early(chunk)) return true;
    if (impl != types::CudaGraphImpl::transformer_engine) return false;
    std::erase_if(chunk, [](const Group& group) { return group.captured; });
    return jumps_too_early(chunk);
}

bool stage_loses_count(const types::Scenario& scenario, const types::OffloadChoice& choice, const Chunk& stage,
                       std::int64_t rank) {
    Chunk first = stage;
    keep_last_of_each_name(first);
    if (rank > 0 && choice.delta_bytes_across_pp_ranks > 0 && !first.empty()) first.front().offload = false;
    keep_by_fraction(first, choice.fraction);
    Chunk other = stage;
    keep_by_fraction(other, choice.fraction);
    if (rank == scenario.parallel.pipeline_model_parallel_size - 1) keep_last_of_each_name(other);
    const std::int64_t chunks = scenario.microbatches();
    const types::CudaGraphImpl impl = scenario.cuda_graph.cuda_graph_impl;
    return (chunks > 1 && jumps_in_some_step(first, impl)) || (chunks > 2 && jumps_in_some_step(other, impl));
}

}  // namespace

bool loses_count_of_chunks(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    if (choice.modules.empty() || scenario.microbatches() < 2) return false;
    if (choice.fraction < 0 || choice.fraction > 1) return false;  // Megatron does not start with it
    if (scenario.parallel.num_virtual_stages_per_pipeline_rank != 1) return false;
    const auto placed = types::stage_table(scenario.parallel, scenario.model);
    const auto* table = std::get_if<types::StageTable>(&placed);
    if (table == nullptr) return false;
    std::int64_t rank = 0;
    for (const types::StageContents& contents : table->front()) {
        const Chunk stage = groups_of_stage(scenario, choice.modules, contents.first_layer, contents.layers);
        if (stage_loses_count(scenario, choice, stage, rank++)) return true;
    }
    return false;
}

}  // namespace stowage::rules
