#pragma once

#include <cstdint>
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

enum class Activation : std::uint8_t { swiglu, gelu, squared_relu };
template <>
struct EnumNames<Activation> {
    static constexpr std::array<std::pair<Activation, std::string_view>, 3> values{
        {{Activation::swiglu, "swiglu"}, {Activation::gelu, "gelu"}, {Activation::squared_relu, "squared_relu"}}};
};

enum class PositionEmbedding : std::uint8_t { rope, learned_absolute, none };
template <>
struct EnumNames<PositionEmbedding> {
    static constexpr std::array<std::pair<PositionEmbedding, std::string_view>, 3> values{
        {{PositionEmbedding::rope, "rope"},
         {PositionEmbedding::learned_absolute, "learned_absolute"},
         {PositionEmbedding::none, "none"}}};
};

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
    double attention_dropout = 0;
    double hidden_dropout = 0;

    std::int64_t num_experts = 0;
    std::int64_t moe_router_topk = 0;
    std::int64_t moe_ffn_hidden_size = 0;
    std::int64_t moe_shared_expert_intermediate_size = 0;  ///< 0: no shared expert
    std::vector<bool> moe_layer_freq;                      ///< per layer: is it MoE; empty: all layers are alike

    [[nodiscard]] bool has_experts() const { return num_experts > 0; }
    /// Whether layer `layer` (from 0, over the whole model) has experts.
    [[nodiscard]] bool is_moe_layer(std::int64_t layer) const {
        if (!has_experts()) return false;
        return moe_layer_freq.empty() || moe_layer_freq[static_cast<std::size_t>(layer)];
    }
    [[nodiscard]] bool gated() const { return activation == Activation::swiglu; }
};

}  // namespace stowage::types
