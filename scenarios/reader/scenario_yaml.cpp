#include "scenarios/reader/scenario_yaml.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace stowage::reader {
namespace {

std::string plain(std::int64_t value) { return std::to_string(value); }
std::string plain(bool value) { return value ? "true" : "false"; }
std::string plain(double value) {
    std::array<char, 32> buffer{};
    return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}
std::string plain(const std::string& text) { return yaml_text(text); }
std::string plain(types::Bytes size) { return std::to_string(size.count) + " B"; }
template <class Enum>
requires requires { types::EnumNames<Enum>::values; }
std::string plain(Enum value) { return std::string(types::name_of(value)); }
template <class Value>
std::string plain(const std::optional<Value>& value) {
    return value ? plain(*value) : "null";
}
template <class Item>
std::string plain(const std::vector<Item>& items) {
    std::string text = "[";
    for (const Item& item : items) text += (text.size() > 1 ? ", " : "") + plain(item);
    return text + "]";
}

/// A group of keys, and its heading once a key is there.
class Group {
public:
    explicit Group(std::string name) : name_(std::move(name)) {}
    template <class Value>
    void always(std::string_view key, const Value& value) {
        line(key, plain(value));
    }
    template <class Value>
    void unless(std::string_view key, const Value& value, const Value& otherwise) {
        if (value != otherwise) line(key, plain(value));
    }
    void line(std::string_view key, const std::string& text) { lines_ += "  " + std::string(key) + ": " + text + "\n"; }
    [[nodiscard]] std::string text() const { return lines_.empty() ? lines_ : name_ + ":\n" + lines_; }

private:
    std::string name_;
    std::string lines_;
};

/// A list of layers; as a number n if every n-th layer from `first` is what `is` says.
std::string frequency(const std::vector<bool>& layers, bool is, std::size_t first_offset) {
    for (std::size_t every = 2; every < layers.size(); ++every) {
        bool all = true;
        for (std::size_t layer = 0; all && layer < layers.size(); ++layer)
            all = layers[layer] == (((layer + first_offset) % every == 0) == is);
        if (all) return std::to_string(every);
    }
    return yaml_text(list_expression(layers));
}

void write_sizes(Group& group, const types::Model& model) {
    group.unless("name", model.name, {});
    group.always("num_layers", model.num_layers);
    group.always("hidden_size", model.hidden_size);
    group.always("ffn_hidden_size", model.ffn_hidden_size);
    group.always("num_attention_heads", model.num_attention_heads);
    if (!model.multi_latent_attention) {
        group.always("num_query_groups", model.num_query_groups);
    }
    group.always("kv_channels", model.kv_channels);
    group.always("vocab_size", model.vocab_size);
    const types::Model usual;
    group.unless("make_vocab_size_divisible_by", model.make_vocab_size_divisible_by,
                 usual.make_vocab_size_divisible_by);
    group.unless("max_position_embeddings", model.max_position_embeddings, usual.max_position_embeddings);
}

/// The scenario language spells the activation as Megatron's flags.
void write_activation(Group& group, const types::Model& model) {
    using types::Activation;
    if (model.activation == Activation::squared_relu || model.activation == Activation::quick_geglu)
        group.line(types::name_of(model.activation), "true");
    else
        group.always("swiglu", model.activation == Activation::swiglu);
}

void write_options(Group& group, const types::Model& model) {
    group.always("normalization", model.normalization);
    write_activation(group, model);
    group.always("position_embedding_type", model.position_embedding_type);
    group.always("untie_embeddings_and_output_weights", model.untie_embeddings_and_output_weights);
    group.always("add_bias_linear", model.add_bias_linear);
    group.unless("add_qkv_bias", model.add_qkv_bias, false);
    group.always("qk_layernorm", model.qk_layernorm);
    group.unless("qk_norm_span", model.qk_norm_span, types::QkNormSpan::head);
    group.unless("attention_output_gate", model.attention_output_gate, false);
    group.unless("transformer_impl", model.transformer_impl, types::TransformerImpl::transformer_engine);
    group.unless("masked_softmax_fusion", model.masked_softmax_fusion, true);
    group.unless("deterministic_mode", model.deterministic_mode, false);
    group.unless("softmax_type", model.softmax_type, types::SoftmaxType::vanilla);
    group.always("attention_dropout", model.attention_dropout);
    group.always("hidden_dropout", model.hidden_dropout);
    if (!model.window_size) return;
    group.always("window_size", *model.window_size);
    if (!model.window_layers.empty()) group.line("window_attn_skip_freq", frequency(model.window_layers, false, 1));
}

void write_latent_attention(Group& group, const types::Model& model) {
    const types::RopeType usual = model.multi_latent_attention ? types::RopeType::yarn : types::RopeType::rope;
    group.unless("rope_type", model.rope_type, usual);
    if (!model.multi_latent_attention) return;
    group.always("multi_latent_attention", true);
    group.line("q_lora_rank", model.q_lora_rank > 0 ? plain(model.q_lora_rank) : "null");
    group.always("kv_lora_rank", model.kv_lora_rank);
    group.always("qk_head_dim", model.qk_head_dim);
    group.always("qk_pos_emb_head_dim", model.qk_pos_emb_head_dim);
    group.always("v_head_dim", model.v_head_dim);
}

void write_experts(Group& group, const types::Model& model) {
    if (!model.has_experts()) return;
    const types::Model usual;
    group.always("num_experts", model.num_experts);
    group.always("moe_router_topk", model.moe_router_topk);
    group.always("moe_ffn_hidden_size", model.moe_ffn_hidden_size);
    group.unless("moe_shared_expert_intermediate_size", model.moe_shared_expert_intermediate_size,
                 usual.moe_shared_expert_intermediate_size);
    group.unless("moe_shared_expert_gate", model.moe_shared_expert_gate, usual.moe_shared_expert_gate);
    group.unless("moe_latent_size", model.moe_latent_size, usual.moe_latent_size);
    group.unless("moe_grouped_gemm", model.moe_grouped_gemm, usual.moe_grouped_gemm);
    group.unless("moe_permute_fusion", model.moe_permute_fusion, usual.moe_permute_fusion);
    group.unless("moe_router_score_function", model.moe_router_score_function, usual.moe_router_score_function);
    group.unless("moe_router_pre_softmax", model.moe_router_pre_softmax, usual.moe_router_pre_softmax);
    group.unless("moe_router_num_groups", model.moe_router_num_groups, usual.moe_router_num_groups);
    group.unless("moe_router_group_topk", model.moe_router_group_topk, usual.moe_router_group_topk);
    group.unless("moe_router_topk_scaling_factor", model.moe_router_topk_scaling_factor,
                 usual.moe_router_topk_scaling_factor);
    group.unless("moe_router_enable_expert_bias", model.moe_router_enable_expert_bias,
                 usual.moe_router_enable_expert_bias);
    group.unless("moe_expert_capacity_factor", model.moe_expert_capacity_factor, usual.moe_expert_capacity_factor);
    group.unless("moe_pad_expert_input_to_capacity", model.moe_pad_expert_input_to_capacity,
                 usual.moe_pad_expert_input_to_capacity);
    if (!model.moe_layer_freq.empty()) group.line("moe_layer_freq", frequency(model.moe_layer_freq, true, 0));
}

void write_linear_attention(Group& group, const types::Model& model) {
    const types::Model usual;
    group.unless("linear_conv_kernel_dim", model.linear_conv_kernel_dim, usual.linear_conv_kernel_dim);
    group.unless("linear_key_head_dim", model.linear_key_head_dim, usual.linear_key_head_dim);
    group.unless("linear_value_head_dim", model.linear_value_head_dim, usual.linear_value_head_dim);
    group.unless("linear_num_key_heads", model.linear_num_key_heads, usual.linear_num_key_heads);
    group.unless("linear_num_value_heads", model.linear_num_value_heads, usual.linear_num_value_heads);
}

/// Layers of one half each make a hybrid pattern; linear attention in whole layers is a frequency.
void write_mixers(Group& group, const types::Model& model) {
    const types::Model usual;
    if (!model.mixers.empty()) {
        if (model.feed_forward.empty()) {
            std::vector<bool> linear;
            for (const types::Mixer mixer : model.mixers) linear.push_back(mixer == types::Mixer::gated_delta_net);
            group.line("experimental_attention_variant", "gated_delta_net");
            group.line("linear_attention_freq", frequency(linear, false, 1));
        } else {
            group.always("hybrid_layer_pattern", hybrid_letters(model));
            group.unless("mamba_num_heads", model.mamba_num_heads, usual.mamba_num_heads);
        }
    }
    group.unless("mamba_state_dim", model.mamba_state_dim, usual.mamba_state_dim);
    group.unless("mamba_head_dim", model.mamba_head_dim, usual.mamba_head_dim);
    group.unless("mamba_num_groups", model.mamba_num_groups, usual.mamba_num_groups);
    write_linear_attention(group, model);
    group.unless("mtp_num_layers", model.mtp_num_layers, usual.mtp_num_layers);
    group.unless("mtp_loss_scaling_factor", model.mtp_loss_scaling_factor, usual.mtp_loss_scaling_factor);
}

std::string model_text(const types::Model& model) {
    Group group("model");
    write_sizes(group, model);
    write_options(group, model);
    write_latent_attention(group, model);
    write_experts(group, model);
    write_mixers(group, model);
    return group.text();
}

void write_stages(Group& group, const types::ParallelLayout& parallel) {
    const types::ParallelLayout usual;
    group.unless("num_virtual_stages_per_pipeline_rank", parallel.num_virtual_stages_per_pipeline_rank,
                 usual.num_virtual_stages_per_pipeline_rank);
    group.unless("decoder_first_pipeline_num_layers", parallel.decoder_first_pipeline_num_layers,
                 usual.decoder_first_pipeline_num_layers);
    group.unless("decoder_last_pipeline_num_layers", parallel.decoder_last_pipeline_num_layers,
                 usual.decoder_last_pipeline_num_layers);
    group.unless("account_for_embedding_in_pipeline_split", parallel.account_for_embedding_in_pipeline_split, false);
    group.unless("account_for_loss_in_pipeline_split", parallel.account_for_loss_in_pipeline_split, false);
    group.unless("pipeline_model_parallel_layout", parallel.pipeline_model_parallel_layout,
                 usual.pipeline_model_parallel_layout);
    group.unless("microbatch_group_size_per_virtual_pipeline_stage",
                 parallel.microbatch_group_size_per_virtual_pipeline_stage,
                 usual.microbatch_group_size_per_virtual_pipeline_stage);
    group.unless("overlap_p2p_comm", parallel.overlap_p2p_comm, usual.overlap_p2p_comm);
}

std::string parallel_text(const types::ParallelLayout& parallel, bool has_experts) {
    const types::ParallelLayout usual;
    Group group("parallel");
    group.always("tensor_model_parallel_size", parallel.tensor_model_parallel_size);
    group.always("pipeline_model_parallel_size", parallel.pipeline_model_parallel_size);
    group.always("context_parallel_size", parallel.context_parallel_size);
    if (has_experts || parallel.expert_model_parallel_size > 1)
        group.always("expert_model_parallel_size", parallel.expert_model_parallel_size);
    if (has_experts || parallel.expert_tensor_parallel_size != parallel.tensor_model_parallel_size)
        group.always("expert_tensor_parallel_size", parallel.expert_tensor_parallel_size);
    group.always("data_parallel_size", parallel.data_parallel_size);
    group.unless("sequence_parallel", parallel.sequence_parallel, false);
    write_stages(group, parallel);
    group.unless("cp_comm_type", parallel.cp_comm_type, usual.cp_comm_type);
    group.unless("hierarchical_context_parallel_sizes", parallel.hierarchical_context_parallel_sizes,
                 usual.hierarchical_context_parallel_sizes);
    group.unless("moe_token_dispatcher_type", parallel.moe_token_dispatcher_type, usual.moe_token_dispatcher_type);
    group.unless("moe_flex_dispatcher_backend", parallel.moe_flex_dispatcher_backend,
                 usual.moe_flex_dispatcher_backend);
    group.unless("moe_shared_expert_overlap", parallel.moe_shared_expert_overlap, false);
    group.unless("overlap_moe_expert_parallel_comm", parallel.overlap_moe_expert_parallel_comm, false);
    group.unless("delay_wgrad_compute", parallel.delay_wgrad_compute, false);
    group.unless("tp_comm_overlap", parallel.tp_comm_overlap, false);
    group.unless("defer_embedding_wgrad_compute", parallel.defer_embedding_wgrad_compute, false);
    group.unless("wgrad_deferral_limit", parallel.wgrad_deferral_limit, usual.wgrad_deferral_limit);
    return group.text();
}

std::string batch_text(const types::Batch& batch) {
    const types::Batch usual;
    Group group("batch");
    group.always("micro_batch_size", batch.micro_batch_size);
    group.always("global_batch_size", batch.global_batch_size);
    group.always("seq_length", batch.seq_length);
    group.unless("routing", batch.routing, usual.routing);
    group.unless("routing_skew", batch.routing_skew, usual.routing_skew);
    return group.text();
}

std::string optimizer_text(const types::Optimizer& optimizer) {
    const types::Optimizer usual;
    Group group("optimizer");
    group.always("optimizer", optimizer.optimizer);
    group.always("use_distributed_optimizer", optimizer.use_distributed_optimizer);
    group.unless("overlap_grad_reduce", optimizer.overlap_grad_reduce, false);
    group.unless("overlap_param_gather", optimizer.overlap_param_gather, false);
    group.unless("num_distributed_optimizer_instances", optimizer.num_distributed_optimizer_instances,
                 usual.num_distributed_optimizer_instances);
    group.unless("use_precision_aware_optimizer", optimizer.use_precision_aware_optimizer, false);
    group.unless("main_grads_dtype", optimizer.main_grads_dtype, usual.main_grads_dtype);
    group.unless("main_params_dtype", optimizer.main_params_dtype, usual.main_params_dtype);
    group.unless("exp_avg_dtype", optimizer.exp_avg_dtype, usual.exp_avg_dtype);
    group.unless("exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype, usual.exp_avg_sq_dtype);
    group.unless("grad_reduce_in_bf16", optimizer.grad_reduce_in_bf16, false);
    group.unless("gradient_accumulation_fusion", optimizer.gradient_accumulation_fusion,
                 usual.gradient_accumulation_fusion);
    group.unless("fp8_param_gather", optimizer.fp8_param_gather, false);
    group.unless("optimizer_cpu_offload", optimizer.optimizer_cpu_offload, false);
    group.unless("optimizer_offload_fraction", optimizer.optimizer_offload_fraction, usual.optimizer_offload_fraction);
    group.unless("overlap_cpu_optimizer_d2h_h2d", optimizer.overlap_cpu_optimizer_d2h_h2d, false);
    return group.text();
}

std::string recompute_text(const types::Recompute& recompute) {
    const types::Recompute usual;
    Group group("recompute");
    group.unless("recompute_granularity", recompute.recompute_granularity, usual.recompute_granularity);
    group.unless("recompute_method", recompute.recompute_method, usual.recompute_method);
    group.unless("recompute_num_layers", recompute.recompute_num_layers, usual.recompute_num_layers);
    group.unless("recompute_modules", recompute.recompute_modules, usual.recompute_modules);
    return group.text();
}

std::string graph_text(const types::CudaGraph& graph) {
    const types::CudaGraph usual;
    Group group("cuda_graph");
    group.unless("cuda_graph_impl", graph.cuda_graph_impl, usual.cuda_graph_impl);
    group.unless("cuda_graph_modules", graph.cuda_graph_modules, usual.cuda_graph_modules);
    group.unless("cuda_graph_warmup_steps", graph.cuda_graph_warmup_steps, usual.cuda_graph_warmup_steps);
    return group.text();
}

std::string offload_text(const types::Offload& offload) {
    const types::Offload usual;
    Group group("offload");
    group.line("offload_modules", offload.offload_modules ? plain(offload.offload_modules->list()) : "auto");
    group.line("activation_offload_fraction",
               offload.activation_offload_fraction ? plain(*offload.activation_offload_fraction) : "auto");
    group.unless("min_offloaded_tensor_size", offload.min_offloaded_tensor_size, usual.min_offloaded_tensor_size);
    group.unless("delta_offload_bytes_across_pp_ranks", offload.delta_offload_bytes_across_pp_ranks,
                 usual.delta_offload_bytes_across_pp_ranks);
    group.unless("fine_grained_offloading_max_inflight_offloads", offload.fine_grained_offloading_max_inflight_offloads,
                 usual.fine_grained_offloading_max_inflight_offloads);
    if (offload.delay_offload_until_cuda_graph != usual.delay_offload_until_cuda_graph)
        group.line("delay_offload_until_cuda_graph",
                   offload.delay_offload_until_cuda_graph ? plain(*offload.delay_offload_until_cuda_graph) : "auto");
    return group.text();
}

std::string env_text(const types::Scenario& scenario) {
    Group group("env");
    for (const auto& [name, value] : scenario.env) group.line(yaml_text(name), yaml_text(value));
    return group.text();
}

std::string hardware_text(const types::Hardware& hardware, const ScenarioFile& file) {
    Group group("hardware");
    if (file.part_of_a_node)
        group.line("node", "{from: " + yaml_text(file.hardware) +
                               ", gpus_per_node: " + std::to_string(hardware.node.gpus_per_node) + "}");
    else
        group.line("node", yaml_text(file.hardware));
    group.always("nodes", static_cast<std::int64_t>(hardware.nodes));
    return group.text();
}

std::string limits_text(const types::Limits& limits) {
    const types::Limits usual;
    Group group("limits");
    group.unless("device_memory", limits.device_memory, usual.device_memory);
    group.unless("host_memory_per_node", limits.host_memory_per_node, usual.host_memory_per_node);
    return group.text();
}

bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

/// Letters, digits and a few signs, beginning with what no number and no YAML sign begins with.
bool may_stand_plain(std::string_view text) {
    constexpr std::string_view kSigns = "_-./";
    if (text.empty() ||
        !(is_letter(text.front()) || text.starts_with("./") || text.starts_with("../") || text.front() == '/'))
        return false;
    for (std::string_view word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
        const bool same = text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(),
                                                                   [](char a, char b) { return (a | 0x20) == b; });
        if (same) return false;
    }
    return std::all_of(text.begin(), text.end(), [&](char byte) {
        return is_letter(byte) || (byte >= '0' && byte <= '9') || kSigns.find(byte) != std::string_view::npos;
    });
}

char letter_of(types::Mixer mixer, types::FeedForward feed_forward) {
    using types::Mixer;
    if (mixer == Mixer::mamba) return 'M';
    if (mixer == Mixer::gated_delta_net) return 'G';
    if (mixer == Mixer::attention) return '*';
    return feed_forward == types::FeedForward::moe ? 'E' : '-';
}

std::string letters_of(const std::vector<types::Mixer>& mixers, const std::vector<types::FeedForward>& feed_forward) {
    std::string letters;
    for (std::size_t layer = 0; layer < mixers.size(); ++layer)
        letters += letter_of(mixers[layer], feed_forward[layer]);
    return letters;
}

}  // namespace

std::string yaml_text(std::string_view text) {
    if (may_stand_plain(text)) return std::string(text);
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string quoted = "\"";
    for (const char byte : text) {
        const auto code = static_cast<unsigned char>(byte);
        if (byte == '"' || byte == '\\') {
            quoted += '\\';
            quoted += byte;
        } else if (code < 0x20 || code == 0x7F) {
            quoted += "\\x";
            quoted += kHex[code >> 4];
            quoted += kHex[code & 0xF];
        } else {
            quoted += byte;
        }
    }
    return quoted + '"';
}

std::string list_expression(const std::vector<bool>& layers) {
    std::string text;
    for (std::size_t start = 0; start < layers.size();) {
        std::size_t end = start;
        while (end < layers.size() && layers[end] == layers[start]) ++end;
        text += std::string(text.empty() ? "" : "+") + (layers[start] ? "[1]*" : "[0]*") + std::to_string(end - start);
        start = end;
    }
    return "(" + text + ")";
}

std::string hybrid_letters(const types::Model& model) {
    std::string letters = letters_of(model.mixers, model.feed_forward);
    if (model.mtp_mixers.empty()) return letters;
    const std::string depth = "/" + letters_of(model.mtp_mixers, model.mtp_feed_forward);
    for (std::int64_t i = 0; i < model.mtp_num_layers; ++i) letters += depth;
    return letters;
}

std::string scenario_yaml(const types::Scenario& scenario, const ScenarioFile& file) {
    std::string text;
    for (const std::string& line : file.remark) text += "# " + line + "\n";
    text += "schema: stowage/scenario/1\n";
    text += model_text(scenario.model);
    text += "implementation: " + plain(scenario.implementation) + "\n";
    text += "rules: " + plain(scenario.rules) + "\n";
    text += env_text(scenario);
    text += parallel_text(scenario.parallel, scenario.model.has_experts());
    text += batch_text(scenario.batch);
    text += "precision: " + plain(scenario.precision) + "\n";
    text += optimizer_text(scenario.optimizer);
    text += recompute_text(scenario.recompute);
    text += graph_text(scenario.cuda_graph);
    text += offload_text(scenario.offload);
    text += hardware_text(scenario.hardware, file);
    text += limits_text(scenario.limits);
    text += "objective: " + plain(scenario.objective) + "\n";
    return text;
}

}  // namespace stowage::reader
