#include "planner/rules/downgrades.hpp"

#include <algorithm>

#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;

constexpr ModuleSet kAttention{Module::qkv_linear, Module::core_attn, Module::attn_proj};

bool lists(const types::CudaGraph& graph, CudaGraphModule module) {
    const auto& listed = graph.cuda_graph_modules;
    return std::find(listed.begin(), listed.end(), module) != listed.end();
}

/// Whether the graph's boundary runs between the norm before the MLP and the tensor that the norm reads.
bool boundary_at_mlp_norm(const types::CudaGraph& graph, bool experts) {
    const bool attention = lists(graph, CudaGraphModule::attn);
    if (experts) return attention || lists(graph, CudaGraphModule::moe_router);
    return attention != lists(graph, CudaGraphModule::mlp);
}

ModuleSet active_in(const types::Model& model, const types::CudaGraph& graph, ModuleSet requested, std::int64_t layer) {
    ModuleSet active;
    for (const Module module : requested.list())
        if (has_site(model, module, layer)) active.insert(module);
    if (lists(graph, CudaGraphModule::attn)) active.erase(Module::attn_norm);
    if (boundary_at_mlp_norm(graph, model.is_moe_layer(layer))) active.erase(Module::mlp_norm);
    return active;
}

/// What of `active` the listed modules hold.
ModuleSet listed_of(const types::CudaGraph& graph, ModuleSet active, bool experts) {
    ModuleSet inside;
    if (!lists(graph, CudaGraphModule::attn)) return inside;
    for (const Module module : kAttention.list())
        if (active.contains(module)) inside.insert(module);
    if (!experts && lists(graph, CudaGraphModule::mlp) && active.contains(Module::mlp_norm))
        inside.insert(Module::mlp_norm);
    return inside;
}

bool asks_for_attention(ModuleSet requested) {
    const auto modules = requested.list();
    return std::any_of(modules.begin(), modules.end(), [](Module module) { return kAttention.contains(module); });
}

}  // namespace

LayerOffload layer_offload(const types::Model& model, const types::CudaGraph& graph, ModuleSet requested,
                           std::int64_t layer) {
    LayerOffload result;
    result.active = active_in(model, graph, requested, layer);
    const ModuleSet inside = listed_of(graph, result.active, model.is_moe_layer(layer));
    const bool whole = graph.cuda_graph_impl == CudaGraphImpl::full_iteration || graph.cuda_graph_modules.empty();
    if (graph.cuda_graph_impl != CudaGraphImpl::none) result.captured = whole ? result.active : inside;
    // A Mamba layer is a class of its own and knows nothing of offloading.
    const bool transformer = model.mixer_of(layer) != types::Mixer::mamba;
    const bool attention = lists(graph, CudaGraphModule::attn) && asks_for_attention(requested);
    result.plants_hooks = transformer && (attention || inside.contains(Module::mlp_norm));
    return result;
}

bool recomputes_mlp_norm(const types::Scenario& scenario, std::int64_t layer) {
    const types::CudaGraph& graph = scenario.cuda_graph;
    const types::Model& model = scenario.model;
    if (!scenario.recompute.selects(types::RecomputeModule::layernorm)) return false;
    if (!has_site(model, Module::mlp_norm, layer)) return false;
    if (graph.cuda_graph_impl != CudaGraphImpl::transformer_engine) return true;
    if (!lists(graph, CudaGraphModule::moe_router)) return true;
    if (model.moe_shared_expert_intermediate_size > 0 && scenario.parallel.moe_shared_expert_overlap) return false;
    const bool rearranged =
        scenario.parallel.moe_token_dispatcher_type == types::TokenDispatcher::alltoall || model.moe_latent_size > 0;
    return rearranged && lists(graph, CudaGraphModule::moe_preprocess);
}

}  // namespace stowage::rules
