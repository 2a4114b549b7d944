#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

// Far above any published model, far below what overflows a 64-bit count of bytes.
constexpr IntegerRange kLayers{1, 100'000};
constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kWidthOrNone{0, 10'000'000};
constexpr IntegerRange kHeads{1, 100'000};
constexpr IntegerRange kVocabulary{1, 1'000'000'000};
constexpr IntegerRange kExperts{0, 100'000};
constexpr NumberRange kProbability{0, 1};

void describe_sizes(Fields& fields, types::Model& model) {
    fields.count({"num_layers", "transformer layers", true}, model.num_layers, kLayers);
    fields.count({"hidden_size", "width of the residual stream", true}, model.hidden_size, kWidth);
    fields.count({"ffn_hidden_size", "width inside a dense MLP; default 4 x hidden_size, with swiglu 8/3 of it"},
                 model.ffn_hidden_size, kWidth);
    fields.count({"num_attention_heads", "query heads", true}, model.num_attention_heads, kHeads);
    fields.count({"num_query_groups", "key/value heads; default num_attention_heads"}, model.num_query_groups, kHeads);
    fields.count({"kv_channels", "size of one head; default hidden_size / num_attention_heads"}, model.kv_channels,
                 kWidth);
    fields.count({"vocab_size", "tokens of the vocabulary before padding", true}, model.vocab_size, kVocabulary);
    fields.count({"make_vocab_size_divisible_by", "padding of the vocabulary per tensor-parallel rank"},
                 model.make_vocab_size_divisible_by, kWidth);
    fields.count({"max_position_embeddings", "learned positions"}, model.max_position_embeddings,
                 IntegerRange{0, 1'000'000'000});
}

/// Megatron spells the activation as flags; without any it is GELU, here as everywhere in this language swiglu.
void describe_activation(Fields& fields, types::Model& model) {
    std::optional<bool> swiglu;
    std::optional<bool> squared_relu;
    fields.optional_flag({"swiglu", "gated SiLU MLP; false: GELU; default true"}, swiglu, {});
    fields.optional_flag({"squared_relu", "squared ReLU MLP"}, squared_relu, {});
    if (swiglu.value_or(false) && squared_relu.value_or(false))
        fields.problem("squared_relu", "found true beside swiglu: true, expected at most one activation");
    if (squared_relu.value_or(false)) {
        model.activation = types::Activation::squared_relu;
    } else if (swiglu) {
        model.activation = *swiglu ? types::Activation::swiglu : types::Activation::gelu;
    } else if (squared_relu && model.activation == types::Activation::squared_relu) {
        model.activation = types::Activation::gelu;
    }
}

void describe_options(Fields& fields, types::Model& model) {
    fields.choice({"normalization", "kind of layer norm"}, model.normalization);
    describe_activation(fields, model);
    fields.choice({"position_embedding_type", "how positions enter"}, model.position_embedding_type);
    fields.flag({"untie_embeddings_and_output_weights", "separate output weights"},
                model.untie_embeddings_and_output_weights);
    fields.flag({"add_bias_linear", "biases in all linear layers"}, model.add_bias_linear);
    fields.flag({"add_qkv_bias", "biases in the QKV projection"}, model.add_qkv_bias);
    fields.flag({"qk_layernorm", "norms on queries and keys"}, model.qk_layernorm);
    fields.number({"attention_dropout", "probability"}, model.attention_dropout, kProbability);
    fields.number({"hidden_dropout", "probability"}, model.hidden_dropout, kProbability);
}

void describe_experts(Fields& fields, ModelDraft& draft) {
    types::Model& model = draft.model;
    fields.count({"num_experts", "experts of a MoE layer; 0: a dense model"}, model.num_experts, kExperts);
    fields.count({"moe_router_topk", "experts that see a token; default 2"}, model.moe_router_topk,
                 IntegerRange{1, 100'000});
    fields.count({"moe_ffn_hidden_size", "width inside an expert; default ffn_hidden_size"}, model.moe_ffn_hidden_size,
                 kWidth);
    fields.count({"moe_shared_expert_intermediate_size", "width of the shared expert; 0: none"},
                 model.moe_shared_expert_intermediate_size, kWidthOrNone);
    const auto set_list = [&](const std::vector<ScalarValue>& values) {
        draft.moe_every.reset();
        model.moe_layer_freq.clear();
        for (const ScalarValue& value : values) model.moe_layer_freq.push_back(std::get<std::int64_t>(value) != 0);
    };
    const auto set_every = [&](const ScalarValue& value) {
        model.moe_layer_freq.clear();
        draft.moe_every = std::get<std::int64_t>(value);
    };
    fields.list({"moe_layer_freq", "n: every n-th layer from layer 0 has experts; or one 0 or 1 for each layer"},
                ScalarKind{IntegerRange{0, 1}}, set_list, ScalarKind{kLayers}, set_every);
}

/// Keys that Megatron knows and real models use, which the planner's layers do not cover yet.
void refuse_what_cannot_be_planned(Fields& fields) {
    for (std::string_view key :
         {"multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"})
        fields.refused(key, "multi-latent attention is not planned yet");
    for (std::string_view key : {"mtp_num_layers", "mtp_loss_scaling_factor"})
        fields.refused(key, "multi-token prediction is not planned yet");
    for (std::string_view key : {"hybrid_override_pattern", "hybrid_layer_pattern", "is_hybrid_model",
                                 "mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads"})
        fields.refused(key, "hybrid and Mamba models are not planned yet");
    for (std::string_view key :
         {"moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_token_drop_policy"})
        fields.refused(key, "only dropless routing is planned");
    for (std::string_view key : {"window_size", "window_attn_skip_freq"})
        fields.refused(key, "only full causal attention is planned");
    for (std::string_view key : {"experimental_attention_variant", "linear_attention_freq"})
        fields.refused(key, "linear and sparse attention are not planned yet");
    fields.refused("moe_latent_size", "latent MoE is not planned yet");
    fields.refused("moe_shared_expert_gate", "a gated shared expert is not planned yet");
}

/// Megatron: 4 x hidden; with a gated MLP two thirds of that, in steps of 64 (arguments.py, validate_args).
std::int64_t default_ffn(const types::Model& model) {
    constexpr std::int64_t kStep = 64;
    if (!model.gated()) return 4 * model.hidden_size;
    return 4 * model.hidden_size * 2 / 3 / kStep * kStep;
}

}  // namespace

void describe_model(Fields& fields, ModelDraft& draft) {
    fields.schema(kModelFile);
    fields.text({"name", "default: the file's name"}, draft.model.name);
    fields.remark("source");
    fields.remark("sources");
    describe_sizes(fields, draft.model);
    describe_options(fields, draft.model);
    describe_experts(fields, draft);
    refuse_what_cannot_be_planned(fields);
}

types::Model complete(const ModelDraft& draft) {
    types::Model model = draft.model;
    if (model.ffn_hidden_size == 0) model.ffn_hidden_size = default_ffn(model);
    if (model.num_query_groups == 0) model.num_query_groups = model.num_attention_heads;
    if (model.kv_channels == 0 && model.num_attention_heads > 0)
        model.kv_channels = model.hidden_size / model.num_attention_heads;
    if (!model.has_experts()) return model;
    if (model.moe_router_topk == 0) model.moe_router_topk = 2;
    if (model.moe_ffn_hidden_size == 0) model.moe_ffn_hidden_size = model.ffn_hidden_size;
    if (draft.moe_every.value_or(1) > 1)
        for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
            model.moe_layer_freq.push_back(layer % *draft.moe_every == 0);
    return model;
}

}  // namespace stowage::reader
