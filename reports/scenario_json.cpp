#include "reports/scenario_json.hpp"

#include "reports/hardware_json.hpp"

namespace stowage::reports {
namespace {

template <class Enum>
std::string word(Enum value) {
    return std::string(types::name_of(value));
}

template <class Enum>
Json words(const std::vector<Enum>& values) {
    Json list = Json::array();
    for (const Enum value : values) list.push_back(word(value));
    return list;
}

/// The value, or the word that the language has for its absence.
template <class Value>
Json value_or(const std::optional<Value>& value, const Json& absent) {
    return value ? Json(*value) : absent;
}

void add_experts(Json& json, const types::Model& model) {
    json["num_experts"] = model.num_experts;
    json["moe_router_topk"] = model.moe_router_topk;
    json["moe_ffn_hidden_size"] = model.moe_ffn_hidden_size;
    json["moe_shared_expert_intermediate_size"] = model.moe_shared_expert_intermediate_size;
    if (model.moe_layer_freq.empty()) return;
    Json layers = Json::array();
    for (const bool is_moe : model.moe_layer_freq) layers.push_back(is_moe ? 1 : 0);
    json["moe_layer_freq"] = layers;
}

Json model_json(const types::Model& model) {
    Json json;
    if (!model.name.empty()) json["name"] = model.name;
    json["num_layers"] = model.num_layers;
    json["hidden_size"] = model.hidden_size;
    json["ffn_hidden_size"] = model.ffn_hidden_size;
    json["num_attention_heads"] = model.num_attention_heads;
    json["num_query_groups"] = model.num_query_groups;
    json["kv_channels"] = model.kv_channels;
    json["vocab_size"] = model.vocab_size;
    json["make_vocab_size_divisible_by"] = model.make_vocab_size_divisible_by;
    json["max_position_embeddings"] = model.max_position_embeddings;
    json["normalization"] = word(model.normalization);
    json["swiglu"] = model.activation == types::Activation::swiglu;
    json["squared_relu"] = model.activation == types::Activation::squared_relu;
    json["position_embedding_type"] = word(model.position_embedding_type);
    json["untie_embeddings_and_output_weights"] = model.untie_embeddings_and_output_weights;
    json["add_bias_linear"] = model.add_bias_linear;
    json["add_qkv_bias"] = model.add_qkv_bias;
    json["qk_layernorm"] = model.qk_layernorm;
    json["attention_dropout"] = model.attention_dropout;
    json["hidden_dropout"] = model.hidden_dropout;
    if (model.has_experts()) add_experts(json, model);
    return json;
}

Json parallel_json(const types::ParallelLayout& parallel) {
    Json json;
    json["tensor_model_parallel_size"] = parallel.tensor_model_parallel_size;
    json["pipeline_model_parallel_size"] = parallel.pipeline_model_parallel_size;
    json["num_virtual_stages_per_pipeline_rank"] = parallel.num_virtual_stages_per_pipeline_rank;
    json["context_parallel_size"] = parallel.context_parallel_size;
    json["expert_model_parallel_size"] = parallel.expert_model_parallel_size;
    json["expert_tensor_parallel_size"] = parallel.expert_tensor_parallel_size;
    json["data_parallel_size"] = parallel.data_parallel_size;
    json["sequence_parallel"] = parallel.sequence_parallel;
    json["decoder_first_pipeline_num_layers"] = value_or(parallel.decoder_first_pipeline_num_layers, nullptr);
    json["decoder_last_pipeline_num_layers"] = value_or(parallel.decoder_last_pipeline_num_layers, nullptr);
    json["account_for_embedding_in_pipeline_split"] = parallel.account_for_embedding_in_pipeline_split;
    json["account_for_loss_in_pipeline_split"] = parallel.account_for_loss_in_pipeline_split;
    if (!parallel.pipeline_model_parallel_layout.empty())
        json["pipeline_model_parallel_layout"] = parallel.pipeline_model_parallel_layout;
    json["microbatch_group_size_per_virtual_pipeline_stage"] =
        value_or(parallel.microbatch_group_size_per_virtual_pipeline_stage, nullptr);
    return json;
}

Json batch_json(const types::Batch& batch) {
    return {{"micro_batch_size", batch.micro_batch_size},
            {"global_batch_size", batch.global_batch_size},
            {"seq_length", batch.seq_length},
            {"routing", word(batch.routing)},
            {"routing_skew", batch.routing_skew}};
}

Json optimizer_json(const types::Optimizer& optimizer) {
    return {{"optimizer", word(optimizer.optimizer)},
            {"use_distributed_optimizer", optimizer.use_distributed_optimizer},
            {"overlap_grad_reduce", optimizer.overlap_grad_reduce},
            {"overlap_param_gather", optimizer.overlap_param_gather}};
}

Json recompute_json(const types::Recompute& recompute) {
    return {{"recompute_granularity", word(recompute.recompute_granularity)},
            {"recompute_method", word(recompute.recompute_method)},
            {"recompute_num_layers", value_or(recompute.recompute_num_layers, nullptr)},
            {"recompute_modules", words(recompute.recompute_modules)}};
}

Json cuda_graph_json(const types::CudaGraph& graph) {
    return {{"cuda_graph_impl", word(graph.cuda_graph_impl)},
            {"cuda_graph_modules", words(graph.cuda_graph_modules)},
            {"cuda_graph_warmup_steps", graph.cuda_graph_warmup_steps}};
}

Json offload_json(const types::Offload& offload) {
    Json json;
    json["offload_modules"] = offload.offload_modules ? words(offload.offload_modules->list()) : Json("auto");
    json["activation_offload_fraction"] = value_or(offload.activation_offload_fraction, "auto");
    json["min_offloaded_tensor_size"] = offload.min_offloaded_tensor_size;
    json["delta_offload_bytes_across_pp_ranks"] = offload.delta_offload_bytes_across_pp_ranks;
    json["fine_grained_offloading_max_inflight_offloads"] =
        value_or(offload.fine_grained_offloading_max_inflight_offloads, nullptr);
    json["delay_offload_until_cuda_graph"] = value_or(offload.delay_offload_until_cuda_graph, "auto");
    return json;
}

}  // namespace

Json scenario_json(const types::Scenario& scenario) {
    Json json;
    json["schema"] = "stowage/scenario/1";
    json["model"] = model_json(scenario.model);
    json["implementation"] = word(scenario.implementation);
    json["rules"] = word(scenario.rules);
    json["env"] = Json(scenario.env);
    json["parallel"] = parallel_json(scenario.parallel);
    json["batch"] = batch_json(scenario.batch);
    json["precision"] = word(scenario.precision);
    json["optimizer"] = optimizer_json(scenario.optimizer);
    json["recompute"] = recompute_json(scenario.recompute);
    json["cuda_graph"] = cuda_graph_json(scenario.cuda_graph);
    json["offload"] = offload_json(scenario.offload);
    json["hardware"] = {{"node", hardware_json(scenario.hardware.node)}, {"nodes", scenario.hardware.nodes}};
    json["limits"] = {{"device_memory", scenario.device_memory_limit().count},
                      {"host_memory_per_node", scenario.host_memory_limit().count}};
    json["objective"] = word(scenario.objective);
    return json;
}

}  // namespace stowage::reports
