#include "planner/layers/dimensions.hpp"

#include <algorithm>
#include <cmath>

namespace stowage::layers {
namespace {

void set_tokens(Dimensions& d, const types::Scenario& scenario) {
    const types::ParallelLayout& layout = scenario.parallel;
    d.micro_batch = scenario.batch.micro_batch_size;
    d.context = layout.context_parallel_size;
    d.full_sequence = scenario.batch.seq_length;
    d.sequence = d.full_sequence / d.context;
    d.tensor = layout.tensor_model_parallel_size;
    d.expert = layout.expert_model_parallel_size;
    d.expert_tensor = layout.expert_tensor_parallel_size;
    d.sequence_parallel = layout.sequence_shards() > 1;
    d.tokens = d.micro_batch * d.sequence;
    d.local_tokens = d.tokens / layout.sequence_shards();
}

void set_attention_widths(Dimensions& d, const types::Model& model) {
    const bool latent = model.multi_latent_attention;
    d.heads = model.num_attention_heads / d.tensor;
    d.groups = latent ? d.heads : model.num_query_groups / d.tensor;
    d.head_size = latent ? model.qk_head_dim + model.qk_pos_emb_head_dim : model.kv_channels;
    d.value_head_size = latent ? model.v_head_dim : model.kv_channels;
    d.query_width = d.heads * d.head_size;
    d.key_width = d.groups * d.head_size;
    d.value_width = d.groups * d.value_head_size;
    d.output_width = d.heads * d.value_head_size;
    d.qkv_width = d.query_width + d.key_width + d.value_width + (model.attention_output_gate ? d.output_width : 0);
}

void set_dense_widths(Dimensions& d, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    d.hidden = model.hidden_size;
    d.ffn = model.ffn_hidden_size / d.tensor;
    d.fc1_width = d.ffn * (model.gated() ? 2 : 1);
    d.padded_vocabulary = padded_vocabulary(scenario);
    d.vocabulary = d.padded_vocabulary / d.tensor;
}

/// Tokens that an expert takes from one rank: the mean times the factor, rounded up.
/// Source: Megatron-LM, core/transformer/moe/moe_utils.py, get_capacity.
std::int64_t capacity_of(const Dimensions& d, const types::Model& model) {
    if (!model.moe_expert_capacity_factor) return 0;
    const auto mean = static_cast<double>(d.local_tokens * d.topk) / static_cast<double>(d.experts);
    return static_cast<std::int64_t>(std::ceil(mean * *model.moe_expert_capacity_factor));
}

/// Padded, every rank sends as many to every expert. Otherwise a capacity only takes away what is over it.
std::int64_t sent(const Dimensions& d, const types::Model& model) {
    const std::int64_t chosen = d.local_tokens * d.topk;
    if (d.capacity == 0) return chosen;
    return model.drop_and_pad() ? d.capacity * d.experts : std::min(chosen, d.capacity * d.experts);
}

/// The most loaded rank gets `routing_skew` times the mean, but never more than there is, nor more than its experts
/// take.
std::int64_t received(const Dimensions& d, const types::Scenario& scenario) {
    if (scenario.batch.routing != types::Routing::skewed || scenario.model.drop_and_pad()) return d.sent_tokens;
    const auto wanted = std::ceil(static_cast<double>(d.sent_tokens) * scenario.batch.routing_skew);
    const std::int64_t all = d.sent_tokens * d.expert;
    const std::int64_t most = d.capacity > 0 ? std::min(all, d.capacity * d.local_experts * d.expert) : all;
    return std::min(static_cast<std::int64_t>(wanted), most);
}

void set_experts(Dimensions& d, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    if (!model.has_experts()) return;
    const std::int64_t halves = model.gated() ? 2 : 1;
    d.shared_ffn = model.moe_shared_expert_intermediate_size / d.tensor;
    d.shared_fc1_width = d.shared_ffn * halves;
    d.routed_width = model.moe_latent_size > 0 ? model.moe_latent_size : d.hidden;
    d.experts = model.num_experts;
    d.local_experts = model.num_experts / d.expert;
    d.topk = model.moe_router_topk;
    d.capacity = capacity_of(d, model);
    d.sent_tokens = sent(d, model);
    d.received_tokens = received(d, scenario);
    d.expert_tokens = d.received_tokens * d.expert_tensor;
    d.expert_ffn = model.moe_ffn_hidden_size / d.expert_tensor;
    d.expert_fc1_width = d.expert_ffn * halves;
}

}  // namespace

std::int64_t padded_vocabulary(const types::Scenario& scenario) {
    const std::int64_t unit =
        scenario.model.make_vocab_size_divisible_by * scenario.parallel.tensor_model_parallel_size;
    return (scenario.model.vocab_size + unit - 1) / unit * unit;
}

Dimensions dimensions_of(const types::Scenario& scenario) {
    Dimensions d;
    set_tokens(d, scenario);
    set_attention_widths(d, scenario.model);
    set_dense_widths(d, scenario);
    set_experts(d, scenario);
    return d;
}

}  // namespace stowage::layers
