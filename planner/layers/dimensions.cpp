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

/// The most loaded rank gets `routing_skew` times the mean, but never more than there is.
std::int64_t received(const Dimensions& d, const types::Batch& batch) {
    if (batch.routing != types::Routing::skewed) return d.sent_tokens;
    const double wanted = std::ceil(static_cast<double>(d.sent_tokens) * batch.routing_skew);
    return std::min(static_cast<std::int64_t>(wanted), d.sent_tokens * d.expert);
}

void set_experts(Dimensions& d, const types::Scenario& scenario) {
    const types::Model& model = scenario.model;
    if (!model.has_experts()) return;
    d.experts = model.num_experts;
    d.local_experts = model.num_experts / d.expert;
    d.topk = model.moe_router_topk;
    d.sent_tokens = d.local_tokens * d.topk;
    d.received_tokens = received(d, scenario.batch);
    d.expert_tokens = d.received_tokens * d.expert_tensor;
    d.expert_ffn = model.moe_ffn_hidden_size / d.expert_tensor;
    d.expert_fc1_width = d.expert_ffn * (model.gated() ? 2 : 1);
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
