#include <algorithm>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/inventory.hpp"

namespace stowage::layers {
namespace {

using types::Model;

double number(std::int64_t value) { return static_cast<double>(value); }

/// Multiplications of one token's scores and context: the causal half of both, or a window's width.
double context_of(const Model& model, std::int64_t layer, std::int64_t sequence) {
    if (!model.is_windowed_layer(layer)) return number(sequence);
    return number(std::min(*model.window_size + 1, sequence));
}

/// Each norm over a latent counts one multiplication an element.
double latent_attention(const Model& model, std::int64_t layer, std::int64_t sequence) {
    const double hidden = number(model.hidden_size);
    const double heads = number(model.num_attention_heads);
    const double query = heads * number(model.qk_head_dim + model.qk_pos_emb_head_dim);
    const double value = heads * number(model.v_head_dim);
    const double query_latent = number(model.q_lora_rank);
    const double projections = model.q_lora_rank > 0 ? query_latent * (hidden + query + 1) : hidden * query;
    const double key_value = number(model.kv_lora_rank) * (hidden + heads * number(model.qk_head_dim) + value + 1);
    return projections + key_value + hidden * number(model.qk_pos_emb_head_dim) + value * hidden +
           context_of(model, layer, sequence) * (query + value) / 2;
}

double attention(const Model& model, std::int64_t layer, std::int64_t sequence) {
    if (model.multi_latent_attention) return latent_attention(model, layer, sequence);
    const double hidden = number(model.hidden_size);
    const double query = number(model.num_attention_heads * model.kv_channels);
    const double key = number(model.num_query_groups * model.kv_channels);
    const double gate = model.attention_output_gate ? query : 0;
    return hidden * (2 * query + 2 * key + gate) + context_of(model, layer, sequence) * query;
}

/// Megatron takes twice the hidden size for the width inside, whatever the heads are.
double mamba(const Model& model) {
    const double hidden = number(model.hidden_size);
    const double inner = 2 * hidden;
    const double grouped = 2 * number(model.mamba_num_groups * model.mamba_state_dim);
    const double scan = 3.5 * inner * number(model.mamba_state_dim);
    return hidden * (2 * inner + grouped + number(model.mamba_num_heads)) + scan + inner * hidden;
}

/// Four products of a head's state with tokens; keys count as wide as values.
double gated_delta_net(const Model& model) {
    const double hidden = number(model.hidden_size);
    const double keys = 2 * number(model.linear_num_key_heads * model.linear_key_head_dim);
    const double heads = number(model.linear_num_value_heads);
    const double size = number(model.linear_value_head_dim);
    const double value = heads * size;
    return hidden * (keys + 2 * value + 2 * heads) + number(model.linear_conv_kernel_dim) * (keys + value) +
           4 * heads * size * size + hidden * value;
}

double mixer(const Model& model, types::Mixer kind, std::int64_t layer, std::int64_t sequence) {
    switch (kind) {
        case types::Mixer::attention: return attention(model, layer, sequence);
        case types::Mixer::mamba: return mamba(model);
        case types::Mixer::gated_delta_net: return gated_delta_net(model);
        case types::Mixer::none: return 0;
    }
    return 0;
}

double feed_forward(const Model& model, types::FeedForward kind) {
    if (kind == types::FeedForward::none) return 0;
    const double hidden = number(model.hidden_size);
    const double matrices = model.activation == types::Activation::swiglu ? 3 : 2;
    if (kind == types::FeedForward::dense) return hidden * number(model.ffn_hidden_size) * matrices;
    const double shared = hidden * number(model.moe_shared_expert_intermediate_size) * matrices;
    const double experts = number(model.moe_router_topk * model.moe_ffn_hidden_size) * matrices;
    if (model.moe_latent_size == 0) return hidden * experts + shared;
    const double latent = number(model.moe_latent_size);
    return latent * experts + 2 * hidden * latent + shared;
}

double layer(const Model& model, std::int64_t place, std::int64_t sequence) {
    return mixer(model, model.mixer_of(place), place, sequence) + feed_forward(model, model.feed_forward_of(place));
}

/// One more layer like the last, three norms, and the projection of two hidden sizes to one. Of a model made of half
/// layers Megatron counts the layers of its pattern alone.
double prediction_layer(const Model& model, std::int64_t sequence) {
    const std::int64_t last = model.num_layers - 1;
    const double hidden = number(model.hidden_size);
    if (model.mtp_mixers.empty()) return layer(model, last, sequence) + 3 * hidden + 2 * hidden * hidden;
    double total = 0;
    for (const types::Mixer kind : model.mtp_mixers) total += mixer(model, kind, last, sequence);
    for (const types::FeedForward kind : model.mtp_feed_forward) total += feed_forward(model, kind);
    return total;
}

}  // namespace

double model_flops_per_step(const types::Scenario& scenario) {
    const Model& model = scenario.model;
    const std::int64_t sequence = scenario.batch.seq_length;
    const std::int64_t predictions = model.mtp_num_layers;
    double per_token = number(model.hidden_size) * number(padded_vocabulary(scenario)) * number(predictions + 1);
    for (std::int64_t i = 0; i < model.num_layers; ++i) per_token += layer(model, i, sequence);
    if (predictions > 0) per_token += number(predictions) * prediction_layer(model, sequence);
    constexpr double kMultiplyAndAdd = 2;
    constexpr double kForwardAndBackward = 3;
    return kForwardAndBackward * kMultiplyAndAdd * number(scenario.batch.global_batch_size) * number(sequence) *
           per_token;
}

}  // namespace stowage::layers
