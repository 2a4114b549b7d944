#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/types/enum_names.hpp"

namespace stowage::types {

enum class Normalization : std::uint8_t { RMSNorm, LayerNorm };
template <>
struct EnumNames<Normalization> {
    static constexpr std::array<std::pair<Normalization, std::string_view>, 2> values{
        {{Normalization::RMSNorm, "RMSNorm"}, {Normalization::LayerNorm, "LayerNorm"}}};
};

enum class Activation : std::uint8_t { swiglu, gelu, squared_relu, quick_geglu };
template <>
struct EnumNames<Activation> {
    static constexpr std::array<std::pair<Activation, std::string_view>, 4> values{
        {{Activation::swiglu, "swiglu"},
         {Activation::gelu, "gelu"},
         {Activation::squared_relu, "squared_relu"},
         {Activation::quick_geglu, "quick_geglu"}}};
};

enum class PositionEmbedding : std::uint8_t { rope, learned_absolute, none };
template <>
struct EnumNames<PositionEmbedding> {
    static constexpr std::array<std::pair<PositionEmbedding, std::string_view>, 3> values{
        {{PositionEmbedding::rope, "rope"},
         {PositionEmbedding::learned_absolute, "learned_absolute"},
         {PositionEmbedding::none, "none"}}};
};

/// Tables that multi-latent attention keeps for its rotary embedding; plain rotary models keep the angles only.
enum class RopeType : std::uint8_t { rope, yarn };
template <>
struct EnumNames<RopeType> {
    static constexpr std::array<std::pair<RopeType, std::string_view>, 2> values{
        {{RopeType::rope, "rope"}, {RopeType::yarn, "yarn"}}};
};

/// What the query and key norms span: one head (as Megatron's), or all heads of the rank at once (MiniMax-M2).
enum class QkNormSpan : std::uint8_t { head, width };
template <>
struct EnumNames<QkNormSpan> {
    static constexpr std::array<std::pair<QkNormSpan, std::string_view>, 2> values{
        {{QkNormSpan::head, "head"}, {QkNormSpan::width, "width"}}};
};

enum class SoftmaxType : std::uint8_t { vanilla, off_by_one, learnable };
template <>
struct EnumNames<SoftmaxType> {
    static constexpr std::array<std::pair<SoftmaxType, std::string_view>, 3> values{
        {{SoftmaxType::vanilla, "vanilla"},
         {SoftmaxType::off_by_one, "off-by-one"},
         {SoftmaxType::learnable, "learnable"}}};
};

enum class RouterScore : std::uint8_t { softmax, sigmoid };
template <>
struct EnumNames<RouterScore> {
    static constexpr std::array<std::pair<RouterScore, std::string_view>, 2> values{
        {{RouterScore::softmax, "softmax"}, {RouterScore::sigmoid, "sigmoid"}}};
};

/// Whose modules the layers are made of: Transformer Engine's, or Megatron's own.
enum class TransformerImpl : std::uint8_t { transformer_engine, local };
template <>
struct EnumNames<TransformerImpl> {
    static constexpr std::array<std::pair<TransformerImpl, std::string_view>, 2> values{
        {{TransformerImpl::transformer_engine, "transformer_engine"}, {TransformerImpl::local, "local"}}};
};

/// What mixes tokens in a layer.
enum class Mixer : std::uint8_t { attention, mamba, gated_delta_net, none };
/// What follows it. Hybrid models have layers of one half only.
enum class FeedForward : std::uint8_t { dense, moe, none };

/// A transformer, in Megatron's names. Sizes are elements. A model without experts is dense.
struct Model {
    std::string name;
    std::int64_t num_layers = 0;
    std::int64_t hidden_size = 0;
    std::int64_t ffn_hidden_size = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_query_groups = 0;  ///< key/value heads; equal to the heads without grouped-query attention
    std::int64_t kv_channels = 0;       ///< size of one head
    std::int64_t vocab_size = 0;        ///< before padding
    std::int64_t make_vocab_size_divisible_by = 128;
    std::int64_t max_position_embeddings = 0;  ///< only learned positions own parameters
    Normalization normalization = Normalization::RMSNorm;
    Activation activation = Activation::swiglu;
    PositionEmbedding position_embedding_type = PositionEmbedding::rope;
    bool untie_embeddings_and_output_weights = true;
    bool add_bias_linear = false;
    bool add_qkv_bias = false;
    bool qk_layernorm = false;
    QkNormSpan qk_norm_span = QkNormSpan::head;
    bool attention_output_gate = false;               ///< a gate as wide as the query, made by the qkv linear
    SoftmaxType softmax_type = SoftmaxType::vanilla;  ///< learnable: one parameter a head
    std::optional<std::int64_t> window_size;          ///< tokens before a token that it sees; none: all
    std::vector<bool> window_layers;                  ///< per layer: is it windowed; empty: all layers are alike
    double attention_dropout = 0;
    double hidden_dropout = 0;

    TransformerImpl transformer_impl = TransformerImpl::transformer_engine;
    bool masked_softmax_fusion = true;  ///< local layers only: scale, mask and softmax in one kernel
    bool deterministic_mode = false;    ///< PyTorch and Transformer Engine use deterministic kernels only

    bool multi_latent_attention = false;  ///< head sizes are then the five below and kv_channels plays no part
    std::int64_t q_lora_rank = 0;         ///< 0: the query is not compressed
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_head_dim = 0;
    std::int64_t qk_pos_emb_head_dim = 0;
    std::int64_t v_head_dim = 0;
    RopeType rope_type = RopeType::rope;

    std::int64_t num_experts = 0;
    std::int64_t moe_router_topk = 0;
    std::int64_t moe_ffn_hidden_size = 0;
    std::int64_t moe_shared_expert_intermediate_size = 0;  ///< 0: no shared expert
    bool moe_shared_expert_gate = false;
    std::int64_t moe_latent_size = 0;  ///< width that routed experts work in; 0: hidden_size
    bool moe_grouped_gemm = true;      ///< false: one expert after another, each with linears of its own
    bool moe_permute_fusion = false;   ///< token copies ordered and summed by fused kernels
    RouterScore moe_router_score_function = RouterScore::softmax;
    bool moe_router_pre_softmax = false;               ///< softmax over all experts, not only over those chosen
    std::int64_t moe_router_num_groups = 0;            ///< experts are chosen out of some groups of them; 0: out of all
    std::int64_t moe_router_group_topk = 0;            ///< that many groups
    double moe_router_topk_scaling_factor = 1;         ///< of the weights
    bool moe_router_enable_expert_bias = false;        ///< a buffer of one number an expert, not a parameter
    std::optional<double> moe_expert_capacity_factor;  ///< none: no token is dropped
    bool moe_pad_expert_input_to_capacity = false;
    std::vector<bool> moe_layer_freq;  ///< per layer: is it MoE; empty: all layers are alike

    std::int64_t mtp_num_layers = 0;       ///< multi-token-prediction layers after the last one
    double mtp_loss_scaling_factor = 0.1;  ///< of the mean of their losses, added to the model's

    std::vector<Mixer> mixers;              ///< per layer; empty: attention everywhere
    std::vector<FeedForward> feed_forward;  ///< per layer; empty: by moe_layer_freq
    /// Layers of one multi-token-prediction layer of a hybrid model; empty: as the last layer of the model.
    std::vector<Mixer> mtp_mixers;
    std::vector<FeedForward> mtp_feed_forward;
    std::int64_t mamba_state_dim = 128;
    std::int64_t mamba_head_dim = 64;
    std::int64_t mamba_num_heads = 0;
    std::int64_t mamba_num_groups = 8;
    std::int64_t linear_conv_kernel_dim = 4;
    std::int64_t linear_key_head_dim = 128;
    std::int64_t linear_value_head_dim = 128;
    std::int64_t linear_num_key_heads = 16;
    std::int64_t linear_num_value_heads = 32;

    [[nodiscard]] bool has_experts() const { return num_experts > 0; }
    /// Whether layer `layer` (from 0, over the whole model) has experts.
    [[nodiscard]] bool is_moe_layer(std::int64_t layer) const { return feed_forward_of(layer) == FeedForward::moe; }
    [[nodiscard]] Mixer mixer_of(std::int64_t layer) const {
        return mixers.empty() ? Mixer::attention : mixers[static_cast<std::size_t>(layer)];
    }
    [[nodiscard]] FeedForward feed_forward_of(std::int64_t layer) const {
        const auto at = static_cast<std::size_t>(layer);
        if (!feed_forward.empty()) return feed_forward[at];
        if (!has_experts()) return FeedForward::dense;
        return moe_layer_freq.empty() || moe_layer_freq[at] ? FeedForward::moe : FeedForward::dense;
    }
    [[nodiscard]] bool is_windowed_layer(std::int64_t layer) const {
        return window_size && (window_layers.empty() || window_layers[static_cast<std::size_t>(layer)]);
    }
    [[nodiscard]] bool is_hybrid() const { return !mixers.empty(); }
    [[nodiscard]] bool gated() const {
        return activation == Activation::swiglu || activation == Activation::quick_geglu;
    }
    /// Whether each expert works on a fixed number of tokens, so that no count has to reach the host.
    [[nodiscard]] bool drop_and_pad() const { return moe_expert_capacity_factor && moe_pad_expert_input_to_capacity; }
    friend bool operator==(const Model&, const Model&) = default;
};

}  // namespace stowage::types
