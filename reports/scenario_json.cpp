#include "reports/scenario_json.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include "reports/hardware_json.hpp"
#include "scenarios/types/check.hpp"

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

Json zeros_and_ones(const std::vector<bool>& layers) {
    Json list = Json::array();
    for (const bool layer : layers) list.push_back(layer ? 1 : 0);
    return list;
}

void add_attention(Json& json, const types::Model& model) {
    json["add_qkv_bias"] = model.add_qkv_bias;
    json["qk_layernorm"] = model.qk_layernorm;
    json["qk_norm_span"] = word(model.qk_norm_span);
    json["attention_output_gate"] = model.attention_output_gate;
    if (model.transformer_impl != types::TransformerImpl::transformer_engine)
        json["transformer_impl"] = word(model.transformer_impl);
    if (!model.masked_softmax_fusion) json["masked_softmax_fusion"] = false;
    if (model.deterministic_mode) json["deterministic_mode"] = true;
    json["softmax_type"] = word(model.softmax_type);
    json["window_size"] = value_or(model.window_size, nullptr);
    if (!model.window_layers.empty()) json["window_attn_skip_freq"] = zeros_and_ones(model.window_layers);
    json["rope_type"] = word(model.rope_type);
    json["multi_latent_attention"] = model.multi_latent_attention;
    if (!model.multi_latent_attention) return;
    json["q_lora_rank"] = model.q_lora_rank;
    json["kv_lora_rank"] = model.kv_lora_rank;
    json["qk_head_dim"] = model.qk_head_dim;
    json["qk_pos_emb_head_dim"] = model.qk_pos_emb_head_dim;
    json["v_head_dim"] = model.v_head_dim;
}

void add_experts(Json& json, const types::Model& model) {
    json["num_experts"] = model.num_experts;
    if (model.moe_router_topk > 0) json["moe_router_topk"] = model.moe_router_topk;
    if (model.moe_ffn_hidden_size > 0) json["moe_ffn_hidden_size"] = model.moe_ffn_hidden_size;
    json["moe_shared_expert_intermediate_size"] = model.moe_shared_expert_intermediate_size;
    json["moe_shared_expert_gate"] = model.moe_shared_expert_gate;
    json["moe_latent_size"] = model.moe_latent_size;
    if (!model.moe_grouped_gemm) json["moe_grouped_gemm"] = false;
    if (model.moe_permute_fusion) json["moe_permute_fusion"] = true;
    json["moe_router_score_function"] = word(model.moe_router_score_function);
    if (model.moe_router_pre_softmax) json["moe_router_pre_softmax"] = true;
    if (model.moe_router_num_groups > 0) json["moe_router_num_groups"] = model.moe_router_num_groups;
    if (model.moe_router_group_topk > 0) json["moe_router_group_topk"] = model.moe_router_group_topk;
    if (model.moe_router_topk_scaling_factor != 1)
        json["moe_router_topk_scaling_factor"] = model.moe_router_topk_scaling_factor;
    json["moe_router_enable_expert_bias"] = model.moe_router_enable_expert_bias;
    json["moe_expert_capacity_factor"] = value_or(model.moe_expert_capacity_factor, nullptr);
    json["moe_pad_expert_input_to_capacity"] = model.moe_pad_expert_input_to_capacity;
    if (!model.moe_layer_freq.empty()) json["moe_layer_freq"] = zeros_and_ones(model.moe_layer_freq);
}

char letter_of(types::Mixer mixer, types::FeedForward feed_forward) {
    using types::FeedForward;
    using types::Mixer;
    STOWAGE_CHECK((mixer == Mixer::none) != (feed_forward == FeedForward::none),
                  "a layer of a hybrid pattern is one half of a layer");
    switch (mixer) {
        case Mixer::mamba: return 'M';
        case Mixer::gated_delta_net: return 'G';
        case Mixer::attention: return '*';
        case Mixer::none: break;
    }
    return feed_forward == FeedForward::dense ? '-' : 'E';
}

std::string letters_of(const std::vector<types::Mixer>& mixers, const std::vector<types::FeedForward>& feed_forward) {
    STOWAGE_CHECK(mixers.size() == feed_forward.size(), "each layer of a hybrid pattern says both halves");
    std::string letters;
    for (std::size_t i = 0; i < mixers.size(); ++i) letters += letter_of(mixers[i], feed_forward[i]);
    return letters;
}

std::string hybrid_pattern(const types::Model& model) {
    std::string pattern = letters_of(model.mixers, model.feed_forward);
    const std::string mtp = letters_of(model.mtp_mixers, model.mtp_feed_forward);
    for (std::int64_t i = 0; i < model.mtp_num_layers && !mtp.empty(); ++i) pattern += "/" + mtp;
    return pattern;
}

/// Halves of layers have a pattern; whole layers differ in what mixes tokens only.
void add_mixers(Json& json, const types::Model& model) {
    json["mamba_state_dim"] = model.mamba_state_dim;
    json["mamba_head_dim"] = model.mamba_head_dim;
    json["mamba_num_heads"] = model.mamba_num_heads;
    json["mamba_num_groups"] = model.mamba_num_groups;
    json["linear_conv_kernel_dim"] = model.linear_conv_kernel_dim;
    json["linear_key_head_dim"] = model.linear_key_head_dim;
    json["linear_value_head_dim"] = model.linear_value_head_dim;
    json["linear_num_key_heads"] = model.linear_num_key_heads;
    json["linear_num_value_heads"] = model.linear_num_value_heads;
    if (model.mixers.empty()) return;
    if (!model.feed_forward.empty()) {
        json["hybrid_layer_pattern"] = hybrid_pattern(model);
        return;
    }
    Json linear = Json::array();
    for (const types::Mixer mixer : model.mixers) {
        STOWAGE_CHECK(mixer == types::Mixer::gated_delta_net || mixer == types::Mixer::attention,
                      "without a hybrid pattern, a layer is attention or linear attention");
        linear.push_back(mixer == types::Mixer::gated_delta_net ? 1 : 0);
    }
    json["experimental_attention_variant"] = "gated_delta_net";
    json["linear_attention_freq"] = linear;
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
    json["quick_geglu"] = model.activation == types::Activation::quick_geglu;
    json["position_embedding_type"] = word(model.position_embedding_type);
    json["untie_embeddings_and_output_weights"] = model.untie_embeddings_and_output_weights;
    json["add_bias_linear"] = model.add_bias_linear;
    json["attention_dropout"] = model.attention_dropout;
    json["hidden_dropout"] = model.hidden_dropout;
    json["mtp_num_layers"] = model.mtp_num_layers;
    if (model.mtp_loss_scaling_factor != types::Model{}.mtp_loss_scaling_factor)
        json["mtp_loss_scaling_factor"] = model.mtp_loss_scaling_factor;
    add_attention(json, model);
    add_experts(json, model);
    add_mixers(json, model);
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
    json["overlap_p2p_comm"] = parallel.overlap_p2p_comm;
    json["cp_comm_type"] = word(parallel.cp_comm_type);
    json["hierarchical_context_parallel_sizes"] = parallel.hierarchical_context_parallel_sizes;
    json["moe_token_dispatcher_type"] = word(parallel.moe_token_dispatcher_type);
    if (parallel.moe_token_dispatcher_type == types::TokenDispatcher::flex)
        json["moe_flex_dispatcher_backend"] = word(parallel.moe_flex_dispatcher_backend);
    json["moe_shared_expert_overlap"] = parallel.moe_shared_expert_overlap;
    json["overlap_moe_expert_parallel_comm"] = parallel.overlap_moe_expert_parallel_comm;
    json["delay_wgrad_compute"] = parallel.delay_wgrad_compute;
    if (parallel.tp_comm_overlap) json["tp_comm_overlap"] = true;
    if (parallel.defer_embedding_wgrad_compute) json["defer_embedding_wgrad_compute"] = true;
    if (parallel.wgrad_deferral_limit != 0) json["wgrad_deferral_limit"] = parallel.wgrad_deferral_limit;
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
            {"overlap_param_gather", optimizer.overlap_param_gather},
            {"num_distributed_optimizer_instances", optimizer.num_distributed_optimizer_instances},
            {"use_precision_aware_optimizer", optimizer.use_precision_aware_optimizer},
            {"main_grads_dtype", word(optimizer.main_grads_dtype)},
            {"main_params_dtype", word(optimizer.main_params_dtype)},
            {"exp_avg_dtype", word(optimizer.exp_avg_dtype)},
            {"exp_avg_sq_dtype", word(optimizer.exp_avg_sq_dtype)},
            {"grad_reduce_in_bf16", optimizer.grad_reduce_in_bf16},
            {"gradient_accumulation_fusion", optimizer.gradient_accumulation_fusion},
            {"fp8_param_gather", optimizer.fp8_param_gather},
            {"optimizer_cpu_offload", optimizer.optimizer_cpu_offload},
            {"optimizer_offload_fraction", optimizer.optimizer_offload_fraction},
            {"overlap_cpu_optimizer_d2h_h2d", optimizer.overlap_cpu_optimizer_d2h_h2d}};
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
