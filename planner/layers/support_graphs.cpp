#include "planner/layers/support_graphs.hpp"

namespace stowage::layers {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;

/// Without fixed sizes the host waits for the counts of tokens, which a capture does not allow.
void check_token_counts(const types::Scenario& scenario, Missing& missing) {
    const types::CudaGraph& graph = scenario.cuda_graph;
    if (!scenario.model.has_experts() || scenario.model.drop_and_pad()) return;
    const bool whole = graph.cuda_graph_impl == CudaGraphImpl::full_iteration ||
                       (graph.cuda_graph_impl != CudaGraphImpl::none && graph.cuda_graph_modules.empty()) ||
                       graph.lists(CudaGraphModule::moe);
    missing.when(whole, "cuda_graph.cuda_graph_impl",
                 "experts without a fixed capacity inside a graph (the host waits for the counts of tokens)",
                 "list the parts of the layer before the experts, or pad expert inputs to a capacity factor");
    const bool counted = graph.lists(CudaGraphModule::moe_preprocess) && scenario.model.moe_expert_capacity_factor;
    missing.when(counted, "cuda_graph.cuda_graph_modules",
                 "moe_preprocess with a capacity factor and without padding (the host waits for the counts of tokens)",
                 "leave moe_preprocess out, or pad expert inputs to capacity");
}

}  // namespace

void check_graphs(const types::Scenario& scenario, Missing& missing) {
    const types::CudaGraph& graph = scenario.cuda_graph;
    if (graph.cuda_graph_impl == CudaGraphImpl::none) return;
    check_token_counts(scenario, missing);
    const bool by_layer = graph.cuda_graph_impl != CudaGraphImpl::full_iteration;
    missing.when(by_layer && scenario.model.mtp_num_layers > 0 && scenario.model.mtp_mixers.size() > 1,
                 "model.hybrid_layer_pattern", "graphs of several layers of multi-token prediction",
                 "give it one layer, or leave the graphs out");
    missing.when(by_layer && scenario.recompute.recompute_granularity == types::RecomputeGranularity::full,
                 "recompute.recompute_granularity", "full recomputation beside graphs of layers",
                 "recompute selectively, or capture the full iteration");
}

}  // namespace stowage::layers
