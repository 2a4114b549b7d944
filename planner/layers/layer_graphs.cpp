#include "planner/layers/layer_graphs.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

using types::CudaGraph;
using types::CudaGraphImpl;
using types::CudaGraphModule;

bool is_layer(const LayerScript& script) {
    return script.kind == ScriptKind::dense_layer || script.kind == ScriptKind::moe_layer;
}

std::size_t at(const GraphEdges& edges, GraphEdge edge) { return edges[static_cast<std::size_t>(edge)]; }

bool has_mixer(const LayerScript& script) { return at(script.forward_edges, GraphEdge::mixer) > 0; }
bool has_feed_forward(const LayerScript& script) {
    return at(script.forward_edges, GraphEdge::mixer) < script.forward.size();
}

bool has(const LayerScript& script, Part part) {
    return std::any_of(script.forward.begin(), script.forward.end(),
                       [part](const Step& step) { return step.part == part; });
}

bool attends(const LayerScript& script) { return has(script, Part::core_attn); }

bool captures_mixer(const LayerScript& script, const CudaGraph& graph) {
    if (graph.cuda_graph_modules.empty()) return true;
    return graph.lists(attends(script) ? CudaGraphModule::attn : CudaGraphModule::mamba);
}

/// The edge that the graph ends at; nothing: the layer's end.
std::optional<GraphEdge> last_edge(const LayerScript& script, const CudaGraph& graph) {
    const bool moe = script.kind == ScriptKind::moe_layer;
    if (graph.cuda_graph_modules.empty()) return std::nullopt;
    if (!moe) return graph.lists(CudaGraphModule::mlp) ? std::nullopt : std::optional(GraphEdge::mixer);
    if (graph.lists(CudaGraphModule::moe)) return std::nullopt;
    const bool router =
        graph.lists(CudaGraphModule::moe_router) && at(script.forward_edges, GraphEdge::router) != kNoEdge;
    if (!router) return GraphEdge::mixer;
    return graph.lists(CudaGraphModule::moe_preprocess) ? GraphEdge::preprocess : GraphEdge::router;
}

}  // namespace

std::optional<LayerGraphs> layer_graphs(const LayerScript& script, const CudaGraph& graph) {
    const bool by_layer =
        graph.cuda_graph_impl == CudaGraphImpl::transformer_engine || graph.cuda_graph_impl == CudaGraphImpl::local;
    if (!by_layer || !is_layer(script)) return std::nullopt;
    const bool mixer = has_mixer(script) && captures_mixer(script, graph);
    const std::optional<GraphEdge> last = has_feed_forward(script) ? last_edge(script, graph) : std::nullopt;
    LayerGraphs graphs;
    graphs.takes_input = mixer || !has_mixer(script);
    graphs.forward = {graphs.takes_input ? 0 : at(script.forward_edges, GraphEdge::mixer),
                      last ? at(script.forward_edges, *last) : script.forward.size()};
    graphs.backward = {last ? at(script.backward_edges, *last) : 0,
                       graphs.takes_input ? script.backward.size() : at(script.backward_edges, GraphEdge::mixer)};
    graphs.hooks = graph.cuda_graph_impl == CudaGraphImpl::transformer_engine && graph.lists(CudaGraphModule::attn) &&
                   attends(script);
    if (graphs.forward.begin >= graphs.forward.end) return std::nullopt;
    return graphs;
}

types::ModuleSet downgraded_modules(const LayerScript& script, const CudaGraph& graph) {
    types::ModuleSet modules;
    if (graph.cuda_graph_modules.empty() || !(is_layer(script) || script.kind == ScriptKind::mtp)) return modules;
    const bool attention = graph.lists(CudaGraphModule::attn);
    if (attention) modules.insert(Module::attn_norm);
    const bool moe = has(script, Part::router);
    const bool cuts_norm =
        moe ? attention || graph.lists(CudaGraphModule::moe_router) : attention != graph.lists(CudaGraphModule::mlp);
    if (cuts_norm) modules.insert(Module::mlp_norm);
    return modules;
}

void add_graphs(const types::Scenario& scenario, StageLayers& stage) {
    const CudaGraph& graph = scenario.cuda_graph;
    for (const LayerScript& script : stage.scripts) stage.downgraded.push_back(downgraded_modules(script, graph));
    stage.graphs.impl = graph.cuda_graph_impl;
    stage.graphs.warmup_steps = graph.cuda_graph_warmup_steps;
    if (graph.cuda_graph_impl != CudaGraphImpl::transformer_engine && graph.cuda_graph_impl != CudaGraphImpl::local)
        return;
    for (const LayerScript& script : stage.scripts) stage.graphs.layers.push_back(layer_graphs(script, graph));
    const std::int64_t keys = scenario.batch.seq_length;
    const std::int64_t queries = keys / scenario.parallel.context_parallel_size;
    stage.graphs.attention_mask = Bytes{scenario.batch.micro_batch_size * queries * keys};  // one byte a score
}

}  // namespace stowage::layers
