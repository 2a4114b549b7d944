#include "planner/layers/layer_graphs.hpp"

#include <algorithm>

#include "planner/layers/transformer_layer.hpp"

namespace stowage::layers {
namespace {

using types::CudaGraph;
using types::CudaGraphImpl;
using types::CudaGraphModule;

bool is_layer(const LayerScript& script) {
    return script.kind == ScriptKind::dense_layer || script.kind == ScriptKind::moe_layer ||
           script.kind == ScriptKind::mtp;
}

std::size_t at(const GraphEdges& edges, GraphEdge edge) { return edges[static_cast<std::size_t>(edge)]; }

/// Begin and end of the layer in a direction: the script's own unless it is a layer inside another.
std::size_t edge_or(const GraphEdges& edges, GraphEdge edge, std::size_t otherwise) {
    return at(edges, edge) == kNoEdge ? otherwise : at(edges, edge);
}

StepRange forward_of(const LayerScript& script) {
    return {edge_or(script.forward_edges, GraphEdge::begin, 0),
            edge_or(script.forward_edges, GraphEdge::end, script.forward.size())};
}

StepRange backward_of(const LayerScript& script) {
    return {edge_or(script.backward_edges, GraphEdge::end, 0),
            edge_or(script.backward_edges, GraphEdge::begin, script.backward.size())};
}

bool has_mixer(const LayerScript& script) {
    return at(script.forward_edges, GraphEdge::mixer) > forward_of(script).begin;
}

/// Behind the mixer of a layer without this half only variables go.
bool has_feed_forward(const LayerScript& script) {
    const StepRange behind{at(script.forward_edges, GraphEdge::mixer), forward_of(script).end};
    for (std::size_t i = behind.begin; i < behind.end; ++i)
        if (script.forward[i].kind == StepKind::kernel) return true;
    return false;
}

bool has(const LayerScript& script, Part part) {
    return std::any_of(script.forward.begin(), script.forward.end(),
                       [part](const Step& step) { return step.part == part; });
}

/// A gated delta net is the attention of a transformer layer; a Mamba layer is of a class of its own.
bool captures_mixer(const LayerScript& script, const CudaGraph& graph) {
    if (graph.cuda_graph_modules.empty()) return true;
    return graph.lists(is_mamba(script) ? CudaGraphModule::mamba : CudaGraphModule::attn);
}

/// The edge that the graph ends at; nothing: the layer's end.
std::optional<GraphEdge> last_edge(const LayerScript& script, const CudaGraph& graph) {
    const bool moe = has(script, Part::router);
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
    const bool feeds = has_feed_forward(script);
    if (!mixer && !feeds) return std::nullopt;
    const std::optional<GraphEdge> last = feeds ? last_edge(script, graph) : std::nullopt;
    LayerGraphs graphs;
    const StepRange forward = forward_of(script);
    const StepRange backward = backward_of(script);
    graphs.takes_input = mixer || !has_mixer(script);
    graphs.takes_gradient = !last;
    graphs.forward = {graphs.takes_input ? forward.begin : at(script.forward_edges, GraphEdge::mixer),
                      last ? at(script.forward_edges, *last) : forward.end};
    graphs.backward = {last ? at(script.backward_edges, *last) : backward.begin,
                       graphs.takes_input ? backward.end : at(script.backward_edges, GraphEdge::mixer)};
    graphs.hooks = graph.cuda_graph_impl == CudaGraphImpl::transformer_engine && graph.lists(CudaGraphModule::attn) &&
                   !is_mamba(script);
    if (graphs.forward.begin >= graphs.forward.end) return std::nullopt;
    return graphs;
}

bool takes_mask(const LayerScript& script, const LayerGraphs& graphs) {
    return graphs.takes_input && has_mixer(script) && !is_mamba(script);
}

types::ModuleSet downgraded_modules(const LayerScript& script, const CudaGraph& graph) {
    types::ModuleSet modules;
    if (graph.cuda_graph_modules.empty() || !is_layer(script)) return modules;
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
