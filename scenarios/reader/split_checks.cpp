#include <algorithm>

#include "scenarios/reader/check_tools.hpp"
#include "scenarios/reader/checks.hpp"

namespace stowage::reader {
namespace {

constexpr const char* kTensorName = "tensor_model_parallel_size";

void check_attention_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    if (!all_read(gathered, {kTensor, "model.num_attention_heads"})) return;
    require_multiple(gathered, kTensor, "num_attention_heads", model.num_attention_heads, kTensorName, tensor);
    if (unread(gathered, "model.num_query_groups") || model.num_query_groups == model.num_attention_heads) return;
    if (model.num_query_groups < tensor && tensor % model.num_query_groups == 0)
        return report(gathered, kTensor,
                      "num_query_groups " + number(model.num_query_groups) +
                          " is less than tensor_model_parallel_size " + number(tensor) +
                          ": known, but this version cannot plan it yet",
                      "at most one tensor-parallel rank for each key/value head");
    require_multiple(gathered, kTensor, "num_query_groups", model.num_query_groups, kTensorName, tensor);
}

bool has_mixer(const types::Model& model, types::Mixer mixer) {
    return std::find(model.mixers.begin(), model.mixers.end(), mixer) != model.mixers.end();
}

/// Mamba and linear attention are split by heads too.
void check_mixer_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    if (!all_read(gathered, {kTensor, "model"})) return;
    if (has_mixer(model, types::Mixer::mamba)) {
        require_multiple(gathered, kTensor, "mamba_num_heads", model.mamba_num_heads, kTensorName, tensor);
        require_multiple(gathered, kTensor, "mamba_num_groups", model.mamba_num_groups, kTensorName, tensor);
    }
    if (has_mixer(model, types::Mixer::gated_delta_net)) {
        require_multiple(gathered, kTensor, "linear_num_key_heads", model.linear_num_key_heads, kTensorName, tensor);
        require_multiple(gathered, kTensor, "linear_num_value_heads", model.linear_num_value_heads, kTensorName,
                         tensor);
    }
}

void check_width_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    if (unread(gathered, kTensor)) return;
    if (!unread(gathered, "model.hidden_size"))
        require_multiple(gathered, kTensor, "hidden_size", model.hidden_size, kTensorName, tensor);
    if (all_read(gathered, {"model.ffn_hidden_size", "model.hidden_size", "model.moe_layer_freq"}) &&
        has_dense_layers(model))
        require_multiple(gathered, kTensor, "ffn_hidden_size", model.ffn_hidden_size, kTensorName, tensor);
    if (!unread(gathered, "model.moe_shared_expert_intermediate_size") && model.has_experts())
        require_multiple(gathered, kTensor, "moe_shared_expert_intermediate_size",
                         model.moe_shared_expert_intermediate_size, kTensorName, tensor);
}

void check_expert_split(Gathered& gathered, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    const types::ParallelLayout& parallel = scenario.parallel;
    if (unread(gathered, "model.num_experts")) return;
    if (!model.has_experts()) {
        if (!unread(gathered, kExpert) && parallel.expert_model_parallel_size > 1)
            report(
                gathered, kExpert,
                "found " + number(parallel.expert_model_parallel_size) + ", but the model has no experts, expected 1");
        return;
    }
    if (!unread(gathered, kExpert))
        require_multiple(gathered, kExpert, "num_experts", model.num_experts, "expert_model_parallel_size",
                         parallel.expert_model_parallel_size);
    if (all_read(gathered, {kExpertTensor, kTensor, "model.moe_ffn_hidden_size", "model.ffn_hidden_size"}))
        require_multiple(gathered, kExpertTensor, "moe_ffn_hidden_size", model.moe_ffn_hidden_size,
                         gathered.where.contains(kExpertTensor)
                             ? "expert_tensor_parallel_size"
                             : "expert_tensor_parallel_size (by default tensor_model_parallel_size)",
                         parallel.expert_tensor_parallel_size);
    if (all_read(gathered, {kTensor, kSequence}) && parallel.tensor_model_parallel_size > 1 &&
        !parallel.sequence_parallel)
        report(gathered, kSequence,
               "false with experts and tensor_model_parallel_size " + number(parallel.tensor_model_parallel_size) +
                   ", expected true",
               "Megatron trains experts under tensor parallelism only with sequence_parallel: true");
}

}  // namespace

void check_split(Gathered& gathered, const types::Scenario& scenario) {
    check_attention_split(gathered, scenario);
    check_mixer_split(gathered, scenario);
    check_width_split(gathered, scenario);
    check_expert_split(gathered, scenario);
}

}  // namespace stowage::reader
