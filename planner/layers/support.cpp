#include "planner/layers/support.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/types/error.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

class Missing {
public:
    void when(bool condition, std::string feature) {
        if (condition) features_.push_back(std::move(feature));
    }
    void report() const {
        if (features_.empty()) return;
        std::string text = "not supported by the layers of implementation megatron:";
        for (const std::string& feature : features_) text += "\n  - " + feature;
        throw types::UnsupportedError(text);
    }

private:
    std::vector<std::string> features_;
};

template <class Enum>
std::string setting(std::string_view key, Enum value) {
    return std::string{key} + ": " + std::string{types::name_of(value)};
}

std::string setting(std::string_view key, std::int64_t value) {
    return std::string{key} + ": " + std::to_string(value);
}

bool divides(std::int64_t part, std::int64_t whole) { return part > 0 && whole % part == 0; }

void check_layout(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    missing.when(layout.context_parallel_size > 1, setting("context_parallel_size", layout.context_parallel_size));
    missing.when(layout.num_virtual_stages_per_pipeline_rank > 1,
                 setting("num_virtual_stages_per_pipeline_rank", layout.num_virtual_stages_per_pipeline_rank));
    missing.when(!layout.pipeline_model_parallel_layout.empty(), "pipeline_model_parallel_layout");
    const auto counts = types::layers_per_stage(layout, scenario.model.num_layers);
    missing.when(!counts, "a number of layers that the pipeline stages do not divide");
    // The first stage has the embedding and the last the head, so these two may have no layer.
    missing.when(
        counts && counts->size() > 2 && std::find(counts->begin() + 1, counts->end() - 1, 0) < counts->end() - 1,
        "a pipeline stage between the first and the last without layers");
}

void check_shards(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    missing.when(!divides(tensor, model.num_attention_heads),
                 "attention heads that tensor parallelism does not divide");
    missing.when(!divides(tensor, model.num_query_groups), "query groups that tensor parallelism does not divide");
    missing.when(!divides(tensor, model.ffn_hidden_size) && !(model.has_experts() && model.moe_layer_freq.empty()),
                 "a feed-forward width that tensor parallelism does not divide");
    missing.when(!divides(scenario.parallel.sequence_shards(), scenario.batch.seq_length),
                 "a sequence that sequence parallelism does not divide");
}

void check_model(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    missing.when(model.activation == types::Activation::squared_relu, setting("activation", model.activation));
    missing.when(scenario.precision != types::Precision::bf16, setting("precision", scenario.precision));
    const auto fused = scenario.env.find("NVTE_FUSED_ATTN");
    missing.when(fused != scenario.env.end() && fused->second == "0",
                 "attention other than cuDNN's (NVTE_FUSED_ATTN=0)");
}

void check_experts(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    if (!model.has_experts()) {
        missing.when(scenario.parallel.expert_model_parallel_size > 1, "expert parallelism of a model without experts");
        return;
    }
    const types::ParallelLayout& layout = scenario.parallel;
    missing.when(model.moe_shared_expert_intermediate_size > 0, "shared experts");
    missing.when(model.add_bias_linear, "biases in the linears of experts");
    missing.when(scenario.batch.routing == types::Routing::recorded, "routing: recorded");
    missing.when(layout.tensor_model_parallel_size > 1 && !layout.sequence_parallel,
                 "experts under tensor parallelism without sequence parallelism");
    missing.when(!divides(layout.expert_model_parallel_size, model.num_experts),
                 "experts that expert parallelism does not divide");
    missing.when(!divides(layout.expert_tensor_parallel_size, model.moe_ffn_hidden_size),
                 "an expert's width that expert tensor parallelism does not divide");
    const std::int64_t replicas =
        layout.tensor_model_parallel_size * layout.context_parallel_size * layout.data_parallel_size;
    missing.when(!divides(layout.expert_tensor_parallel_size * layout.expert_model_parallel_size, replicas),
                 "an expert layout that the ranks of a pipeline stage do not divide");
}

void check_runtime(const Scenario& scenario, Missing& missing) {
    missing.when(scenario.recompute.recompute_granularity != types::RecomputeGranularity::none,
                 setting("recompute_granularity", scenario.recompute.recompute_granularity));
    missing.when(scenario.cuda_graph.cuda_graph_impl != types::CudaGraphImpl::none,
                 setting("cuda_graph_impl", scenario.cuda_graph.cuda_graph_impl));
    missing.when(scenario.optimizer.optimizer != types::OptimizerKind::adam,
                 setting("optimizer", scenario.optimizer.optimizer));
    missing.when(scenario.optimizer.overlap_grad_reduce, "overlap_grad_reduce");
    missing.when(scenario.optimizer.overlap_param_gather, "overlap_param_gather");
}

}  // namespace

void require_supported(const Scenario& scenario) {
    Missing missing;
    missing.when(scenario.implementation != types::Implementation::megatron,
                 setting("implementation", scenario.implementation));
    check_layout(scenario, missing);
    check_shards(scenario, missing);
    check_model(scenario, missing);
    check_experts(scenario, missing);
    check_runtime(scenario, missing);
    missing.report();
}

}  // namespace stowage::layers
