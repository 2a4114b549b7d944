#include <utility>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

/// Megatron: 4 x hidden; with swiglu two thirds of that, in steps of 64 (arguments.py, validate_args).
std::int64_t default_ffn(const types::Model& model) {
    constexpr std::int64_t kStep = 64;
    if (model.activation != types::Activation::swiglu) return 4 * model.hidden_size;
    return 4 * model.hidden_size * 2 / 3 / kStep * kStep;
}

void set_default(std::int64_t& value, std::int64_t otherwise) {
    if (value == 0) value = otherwise;
}

/// Megatron's MLATransformerConfig. Keys and values are there for every head.
void complete_latent_attention(types::Model& model, const ModelDraft& draft) {
    constexpr std::int64_t kLatent = 512;
    constexpr std::int64_t kHead = 128;
    constexpr std::int64_t kRotary = 64;
    model.q_lora_rank = draft.q_lora_rank.value_or(kLatent);
    set_default(model.kv_lora_rank, kLatent);
    set_default(model.qk_head_dim, kHead);
    set_default(model.qk_pos_emb_head_dim, kRotary);
    set_default(model.v_head_dim, kHead);
    model.num_query_groups = model.num_attention_heads;
}

/// One answer a layer of a frequency that says so, from a rule for its number n.
template <class Rule>
std::vector<bool> by_layer(const LayerFrequency& frequency, std::int64_t layers, Rule rule) {
    if (!frequency.every) return frequency.layers;
    std::vector<bool> result;
    for (std::int64_t layer = 0; layer < layers; ++layer) result.push_back(rule(layer, *frequency.every));
    return result;
}

/// Source: Megatron-LM, core/transformer/utils.py, is_layer_window_attention, which counts layers from 1.
std::vector<bool> window_layers(const ModelDraft& draft) {
    if (!draft.model.window_size) return {};
    return by_layer(draft.window_attn_skip_freq, draft.model.num_layers,
                    [](std::int64_t layer, std::int64_t every) { return (layer + 1) % every != 0; });
}

/// Source: Megatron-LM, experimental_attention_variant_module_specs.py, get_linear_attention_pattern.
std::vector<types::Mixer> linear_mixers(const ModelDraft& draft) {
    const std::vector<bool> linear =
        by_layer(draft.linear_attention_freq, draft.model.num_layers,
                 [](std::int64_t layer, std::int64_t every) { return (layer + 1) % every != 0; });
    std::vector<types::Mixer> mixers;
    for (const bool is_linear : linear)
        mixers.push_back(is_linear ? types::Mixer::gated_delta_net : types::Mixer::attention);
    return mixers;
}

void complete_hybrid(types::Model& model, const ModelDraft& draft) {
    if (draft.hybrid) {
        model.mixers = draft.hybrid->mixers;
        model.feed_forward = draft.hybrid->feed_forward;
        model.mtp_mixers = draft.hybrid->mtp_mixers;
        model.mtp_feed_forward = draft.hybrid->mtp_feed_forward;
        set_default(model.mtp_num_layers, static_cast<std::int64_t>(draft.hybrid->mtp_depths));
    } else if (draft.linear_attention) {
        model.mixers = linear_mixers(draft);
    }
    if (model.mixers.empty()) return;
    constexpr std::int64_t kExpansion = 2;  // Megatron's MambaMixer
    if (model.mamba_head_dim > 0)
        set_default(model.mamba_num_heads, kExpansion * model.hidden_size / model.mamba_head_dim);
}

}  // namespace

types::Model complete(const ModelDraft& draft) {
    types::Model model = draft.model;
    if (model.ffn_hidden_size == 0) model.ffn_hidden_size = default_ffn(model);
    set_default(model.num_query_groups, model.num_attention_heads);
    if (model.kv_channels == 0 && model.num_attention_heads > 0)
        model.kv_channels = model.hidden_size / model.num_attention_heads;
    if (model.multi_latent_attention) complete_latent_attention(model, draft);
    model.rope_type =
        draft.rope_type.value_or(model.multi_latent_attention ? types::RopeType::yarn : types::RopeType::rope);
    model.window_layers = window_layers(draft);
    complete_hybrid(model, draft);
    if (draft.moe_layer_freq.every.value_or(0) != 1)
        model.moe_layer_freq = by_layer(draft.moe_layer_freq, model.has_experts() ? model.num_layers : 0,
                                        [](std::int64_t layer, std::int64_t every) { return layer % every == 0; });
    if (!model.has_experts()) return model;
    set_default(model.moe_router_topk, 2);
    set_default(model.moe_ffn_hidden_size, model.ffn_hidden_size);
    return model;
}

}  // namespace stowage::reader
