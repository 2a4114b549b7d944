#include "scenarios/reader/hugging_face_families.hpp"

#include <utility>

namespace stowage::reader {
namespace {

constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kWidthOrNone{0, 10'000'000};
constexpr IntegerRange kCount{1, 1'000'000};
constexpr IntegerRange kCountOrNone{0, 1'000'000};

void require(Arguments& config, std::string_view name, std::string_view key, std::int64_t& value, IntegerRange range) {
    if (!config.count(name, key, value, range) && !config.given(name))
        config.file_error("key " + std::string(name) + " is required");
}

/// In JSON, null is no answer.
bool is_set(Arguments& config, std::string_view name, std::string_view key = {}) {
    if (config.given(name)) return config.flag(name, key);
    config.pass_over(name, {});
    return false;
}

bool is_set_or(Arguments& config, std::string_view name, bool otherwise, std::string_view key = {}) {
    return config.has_value(name) ? is_set(config, name, key) : otherwise;
}

/// A setting that only has one value in the models that can be described.
void refuse_if_set(Arguments& config, std::string_view name, const std::string& what) {
    if (is_set(config, name)) config.error(name, what + " cannot be described");
}

void import_activation(Arguments& config, std::string_view name, types::Model& model) {
    const std::string word = config.text(name, "model.swiglu").value_or("silu");
    if (word == "silu" || word == "swish")
        model.activation = types::Activation::swiglu;
    else if (word == "relu2")
        model.activation = types::Activation::squared_relu;
    else
        config.error(name, "the activation " + in_quotes(word) + " cannot be described", "silu and relu2 can");
}

/// What all families share.
void import_common(Arguments& config, ModelDraft& draft) {
    types::Model& model = draft.model;
    require(config, "num_hidden_layers", "model.num_layers", model.num_layers, IntegerRange{1, 100'000});
    require(config, "hidden_size", "model.hidden_size", model.hidden_size, kWidth);
    require(config, "intermediate_size", "model.ffn_hidden_size", model.ffn_hidden_size, kWidth);
    require(config, "num_attention_heads", "model.num_attention_heads", model.num_attention_heads, kCount);
    require(config, "vocab_size", "model.vocab_size", model.vocab_size, IntegerRange{1, 1'000'000'000});
    config.count("num_key_value_heads", "model.num_query_groups", model.num_query_groups, kCount);
    config.count("head_dim", "model.kv_channels", model.kv_channels, kWidth);
    config.number("attention_dropout", "model.attention_dropout", model.attention_dropout, NumberRange{0, 1});
    model.untie_embeddings_and_output_weights =
        !is_set(config, "tie_word_embeddings", "model.untie_embeddings_and_output_weights");
}

void refuse_biases(Arguments& config) {
    refuse_if_set(config, "attention_bias", "biases of the attention's linears, its output's among them,");
    refuse_if_set(config, "mlp_bias", "biases of the MLP's linears alone");
}

void import_window_of_all(Arguments& config, types::Model& model) {
    if (is_set_or(config, "use_sliding_window", true))
        config.count("sliding_window", "model.window_size", model.window_size, IntegerRange{1, 1'000'000'000});
    else
        config.pass_over("sliding_window", {});
    config.pass_over("max_window_layers", {});
}

void import_llama(Arguments& config, ModelDraft& draft) {
    import_common(config, draft);
    import_activation(config, "hidden_act", draft.model);
    refuse_biases(config);
}

/// Experts of the same width as a dense layer would have.
void import_local_experts(Arguments& config, types::Model& model) {
    require(config, "num_local_experts", "model.num_experts", model.num_experts, kCount);
    require(config, "num_experts_per_tok", "model.moe_router_topk", model.moe_router_topk, kCount);
    model.moe_ffn_hidden_size = model.ffn_hidden_size;
}

void import_mixtral(Arguments& config, ModelDraft& draft) {
    import_llama(config, draft);
    import_window_of_all(config, draft.model);
    import_local_experts(config, draft.model);
}

void import_qwen3(Arguments& config, ModelDraft& draft) {
    import_llama(config, draft);
    import_window_of_all(config, draft.model);
    draft.model.qk_layernorm = true;
}

/// Every decoder_sparse_step-th layer counted from 1 has experts, unless it is listed in mlp_only_layers.
void import_sparse_layers(Arguments& config, ModelDraft& draft) {
    std::int64_t step = 1;
    config.count("decoder_sparse_step", "model.moe_layer_freq", step, IntegerRange{1, 100'000});
    std::vector<bool> experts;
    for (std::int64_t layer = 1; layer <= draft.model.num_layers; ++layer) experts.push_back(layer % step == 0);
    bool all = step == 1;
    for (const std::string& word :
         config.words("mlp_only_layers", "model.moe_layer_freq").value_or(std::vector<std::string>{})) {
        const bool number = word.size() < 7 && word.find_first_not_of("0123456789") == std::string::npos;
        const std::size_t layer = number ? std::stoul(word) : experts.size();
        if (layer >= experts.size()) {
            config.error("mlp_only_layers", "found " + in_quotes(word) + ", expected numbers of layers");
            return;
        }
        experts[layer] = false;
        all = false;
    }
    if (!all) draft.moe_layer_freq.layers = std::move(experts);
}

void import_named_experts(Arguments& config, std::string_view count, types::Model& model) {
    require(config, count, "model.num_experts", model.num_experts, kCount);
    require(config, "num_experts_per_tok", "model.moe_router_topk", model.moe_router_topk, kCount);
    require(config, "moe_intermediate_size", "model.moe_ffn_hidden_size", model.moe_ffn_hidden_size, kWidth);
}

void import_qwen3_moe(Arguments& config, ModelDraft& draft) {
    import_qwen3(config, draft);
    import_named_experts(config, "num_experts", draft.model);
    draft.model.moe_router_pre_softmax = !is_set_or(config, "norm_topk_prob", true, "model.moe_router_pre_softmax");
    import_sparse_layers(config, draft);
}

void import_linear_attention(Arguments& config, ModelDraft& draft) {
    types::Model& model = draft.model;
    draft.linear_attention = true;
    config.implies("model_type", "model.experimental_attention_variant");
    config.count("linear_conv_kernel_dim", "model.linear_conv_kernel_dim", model.linear_conv_kernel_dim, kWidth);
    config.count("linear_key_head_dim", "model.linear_key_head_dim", model.linear_key_head_dim, kWidth);
    config.count("linear_value_head_dim", "model.linear_value_head_dim", model.linear_value_head_dim, kWidth);
    config.count("linear_num_key_heads", "model.linear_num_key_heads", model.linear_num_key_heads, kCount);
    config.count("linear_num_value_heads", "model.linear_num_value_heads", model.linear_num_value_heads, kCount);
    const auto types = config.words("layer_types", "model.linear_attention_freq");
    std::int64_t interval = 4;
    config.count("full_attention_interval", "model.linear_attention_freq", interval, IntegerRange{1, 100'000});
    draft.linear_attention_freq.every = interval;
    if (!types) return;
    draft.linear_attention_freq = {};
    for (const std::string& type : *types) draft.linear_attention_freq.layers.push_back(type == "linear_attention");
}

void import_qwen3_next(Arguments& config, ModelDraft& draft) {
    import_qwen3_moe(config, draft);
    import_linear_attention(config, draft);
    types::Model& model = draft.model;
    model.attention_output_gate = true;
    config.count("shared_expert_intermediate_size", "model.moe_shared_expert_intermediate_size",
                 model.moe_shared_expert_intermediate_size, kWidthOrNone);
    model.moe_shared_expert_gate = model.moe_shared_expert_intermediate_size > 0;
    if (!config.count("num_nextn_predict_layers", "model.mtp_num_layers", model.mtp_num_layers, kCountOrNone))
        config.note("multi-token prediction is not in this file; set mtp_num_layers if the model trains it");
}

/// The first layers are dense; from there every moe_layer_freq-th has experts.
void import_first_dense(Arguments& config, ModelDraft& draft) {
    std::int64_t dense = 0;
    std::int64_t every = 1;
    config.count("first_k_dense_replace", "model.moe_layer_freq", dense, IntegerRange{0, 100'000});
    config.count("moe_layer_freq", "model.moe_layer_freq", every, IntegerRange{1, 100'000});
    if (dense == 0 && every == 1) return;
    for (std::int64_t layer = 0; layer < draft.model.num_layers; ++layer)
        draft.moe_layer_freq.layers.push_back(layer >= dense && layer % every == 0);
}

/// One group is none. Weights are scaled once they add up to one.
void import_router(Arguments& config, types::Model& model) {
    constexpr std::string_view kGroups = "model.moe_router_num_groups";
    std::int64_t groups = 1;
    std::int64_t chosen = 1;
    config.count("n_group", kGroups, groups, kCount);
    config.count("topk_group", "model.moe_router_group_topk", chosen, kCount);
    if (groups > 1) {
        model.moe_router_num_groups = groups;
        model.moe_router_group_topk = chosen;
    }
    config.number("routed_scaling_factor", "model.moe_router_topk_scaling_factor", model.moe_router_topk_scaling_factor,
                  NumberRange{1e-6, 1e6});
}

/// Routed and shared experts as DeepSeek's models name them.
void import_deepseek_experts(Arguments& config, ModelDraft& draft) {
    types::Model& model = draft.model;
    import_named_experts(config, "n_routed_experts", model);
    std::int64_t shared = 0;
    config.count("n_shared_experts", "model.moe_shared_expert_intermediate_size", shared, kCountOrNone);
    model.moe_shared_expert_intermediate_size = shared * model.moe_ffn_hidden_size;
    if (config.text("scoring_func", "model.moe_router_score_function").value_or("sigmoid") == "sigmoid")
        model.moe_router_score_function = types::RouterScore::sigmoid;
    model.moe_router_enable_expert_bias =
        config.text("topk_method", "model.moe_router_enable_expert_bias").value_or("noaux_tc") == "noaux_tc";
    import_router(config, model);
    import_first_dense(config, draft);
    config.count("num_nextn_predict_layers", "model.mtp_num_layers", model.mtp_num_layers, kCountOrNone);
}

/// Norms of the compressed query and of the compressed keys and values are always there.
void import_latent_attention(Arguments& config, ModelDraft& draft) {
    types::Model& model = draft.model;
    model.multi_latent_attention = true;
    config.implies("model_type", "model.multi_latent_attention");
    model.qk_layernorm = true;
    model.num_query_groups = 0;
    model.kv_channels = 0;  // head_dim, where it stands, is the rotary part's
    draft.q_lora_rank = 0;
    config.count("q_lora_rank", "model.q_lora_rank", draft.q_lora_rank, kWidth);
    require(config, "kv_lora_rank", "model.kv_lora_rank", model.kv_lora_rank, kWidth);
    require(config, "qk_nope_head_dim", "model.qk_head_dim", model.qk_head_dim, kWidth);
    require(config, "qk_rope_head_dim", "model.qk_pos_emb_head_dim", model.qk_pos_emb_head_dim, kWidth);
    require(config, "v_head_dim", "model.v_head_dim", model.v_head_dim, kWidth);
    const bool yarn = config.member("rope_scaling", "type") == "yarn" ||
                      config.member("rope_scaling", "rope_type") == "yarn" ||
                      config.member("rope_parameters", "rope_type") == "yarn";
    draft.rope_type = yarn ? types::RopeType::yarn : types::RopeType::rope;
}

void import_deepseek(Arguments& config, ModelDraft& draft) {
    import_common(config, draft);
    import_activation(config, "hidden_act", draft.model);
    refuse_biases(config);
    import_latent_attention(config, draft);
    import_deepseek_experts(config, draft);
}

void import_glm5(Arguments& config, ModelDraft& draft) {
    import_deepseek(config, draft);
    if (config.given("index_topk"))
        config.note("index_topk", "sparse attention is taken as full attention, and its indexer is left out");
    config.pass_over("index_", {});
}

void import_glm4_moe(Arguments& config, ModelDraft& draft) {
    import_common(config, draft);
    import_activation(config, "hidden_act", draft.model);
    draft.model.add_qkv_bias = is_set(config, "attention_bias", "model.add_qkv_bias");  // the output has none
    draft.model.qk_layernorm = is_set(config, "use_qk_norm", "model.qk_layernorm");
    import_deepseek_experts(config, draft);
}

void import_minimax(Arguments& config, ModelDraft& draft) {
    import_llama(config, draft);
    types::Model& model = draft.model;
    import_local_experts(config, model);
    model.qk_layernorm = is_set(config, "use_qk_norm", "model.qk_layernorm");
    if (model.qk_layernorm && config.text("qk_norm_type", "model.qk_norm_span").value_or("per_layer") == "per_layer")
        model.qk_norm_span = types::QkNormSpan::width;
    if (config.text("scoring_func", "model.moe_router_score_function").value_or("softmax") == "sigmoid")
        model.moe_router_score_function = types::RouterScore::sigmoid;
    model.moe_router_enable_expert_bias = is_set(config, "use_routing_bias", "model.moe_router_enable_expert_bias");
    config.count("shared_intermediate_size", "model.moe_shared_expert_intermediate_size",
                 model.moe_shared_expert_intermediate_size, kWidthOrNone);
    for (const std::string& type : config.words("attn_type_list", {}).value_or(std::vector<std::string>{}))
        if (type != "1") return config.error("attn_type_list", "layers of linear attention cannot be described here");
    if (is_set(config, "use_mtp"))
        config.note("use_mtp", "modules of multi-token prediction are left out; set mtp_num_layers to train them");
    config.pass_over("num_mtp_modules", {});
    config.pass_over("mtp_transformer_layers", {});
}

/// layer_types says which layers see a window only; without it every second layer does, from the first.
void import_alternating_window(Arguments& config, ModelDraft& draft) {
    if (!config.count("sliding_window", "model.window_size", draft.model.window_size, IntegerRange{1, 1'000'000'000}))
        return;
    draft.window_attn_skip_freq.every = 2;
    const auto types = config.words("layer_types", "model.window_attn_skip_freq");
    if (!types) return;
    draft.window_attn_skip_freq = {};
    for (const std::string& type : *types) draft.window_attn_skip_freq.layers.push_back(type == "sliding_attention");
}

/// Every linear has a bias, every head a sink, and experts use the sigmoid form of GELU on a clamped gate.
void import_gpt_oss(Arguments& config, ModelDraft& draft) {
    import_common(config, draft);
    types::Model& model = draft.model;
    config.pass_over("hidden_act", {});
    model.activation = types::Activation::quick_geglu;
    model.softmax_type = types::SoftmaxType::learnable;
    model.add_bias_linear = true;
    model.add_qkv_bias = is_set_or(config, "attention_bias", true, "model.add_qkv_bias");
    import_alternating_window(config, draft);
    import_local_experts(config, model);
    config.pass_over("experts_per_token", {});
}

/// Letters of layers, or the words that newer files have for them.
std::string letters_or_words(Arguments& config, std::string_view letters_name, std::string_view words_name) {
    constexpr std::string_view kKey = "model.hybrid_layer_pattern";
    std::string letters = config.text(letters_name, kKey).value_or("");
    const auto words = config.words(words_name, kKey);
    if (!letters.empty() || !words) return letters;
    for (const std::string& word : *words) {
        const char letter = word == "mamba"       ? 'M'
                            : word == "attention" ? '*'
                            : word == "moe"       ? 'E'
                            : word == "mlp"       ? '-'
                                                  : '?';
        letters += letter;
    }
    return letters;
}

/// The pattern of layers, and after a `/` for each depth that of a multi-token-prediction layer.
std::string nemotron_pattern(Arguments& config, types::Model& model) {
    std::string letters = letters_or_words(config, "hybrid_override_pattern", "layers_block_type");
    const std::string depth = letters_or_words(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type");
    std::int64_t depths = 0;
    config.count("num_nextn_predict_layers", "model.mtp_num_layers", depths, IntegerRange{0, 1000});
    if (depth.empty()) model.mtp_num_layers = depths;
    for (std::int64_t i = 0; !depth.empty() && i < depths; ++i) letters += "/" + depth;
    return letters;
}

void import_nemotron_experts(Arguments& config, types::Model& model) {
    if (!config.count("n_routed_experts", "model.num_experts", model.num_experts, kCountOrNone)) return;
    import_named_experts(config, "n_routed_experts", model);
    std::int64_t shared = 0;
    config.count("n_shared_experts", "model.moe_shared_expert_intermediate_size", shared, kCountOrNone);
    model.moe_shared_expert_intermediate_size = shared * model.moe_ffn_hidden_size;
    config.count("moe_shared_expert_intermediate_size", "model.moe_shared_expert_intermediate_size",
                 model.moe_shared_expert_intermediate_size, kWidthOrNone);
    config.count("moe_latent_size", "model.moe_latent_size", model.moe_latent_size, kWidthOrNone);
    model.moe_router_score_function = types::RouterScore::sigmoid;
    model.moe_router_enable_expert_bias = true;
    import_router(config, model);
}

/// Attention without positions among Mamba layers.
void import_nemotron(Arguments& config, ModelDraft& draft) {
    import_common(config, draft);
    types::Model& model = draft.model;
    import_activation(config, "mlp_hidden_act", model);
    refuse_biases(config);
    for (const char* name : {"use_bias", "mamba_proj_bias"}) refuse_if_set(config, name, "biases of the Mamba layers'");
    model.position_embedding_type = types::PositionEmbedding::none;
    config.count("attention_head_dim", "model.kv_channels", model.kv_channels, kWidth);
    config.count("ssm_state_size", "model.mamba_state_dim", model.mamba_state_dim, kWidth);
    config.count("mamba_head_dim", "model.mamba_head_dim", model.mamba_head_dim, kWidth);
    config.count("mamba_num_heads", "model.mamba_num_heads", model.mamba_num_heads, kCount);
    config.count("n_groups", "model.mamba_num_groups", model.mamba_num_groups, kCount);
    auto pattern = parse_hybrid_pattern(nemotron_pattern(config, model));
    if (const auto* bad = std::get_if<BadPattern>(&pattern))
        return config.error("hybrid_override_pattern", "found " + bad->reason);
    draft.hybrid = std::get<HybridPattern>(std::move(pattern));
    if (static_cast<std::int64_t>(draft.hybrid->mixers.size()) != model.num_layers)
        config.error("hybrid_override_pattern", "found " + std::to_string(draft.hybrid->mixers.size()) +
                                                    " layers, expected num_hidden_layers " +
                                                    std::to_string(model.num_layers));
    import_nemotron_experts(config, model);
}

}  // namespace

const std::vector<HuggingFaceFamily>& hugging_face_families() {
    static const std::vector<HuggingFaceFamily> families{
        {"llama", import_llama},         {"mixtral", import_mixtral},       {"qwen3", import_qwen3},
        {"qwen3_moe", import_qwen3_moe}, {"qwen3_next", import_qwen3_next}, {"deepseek_v3", import_deepseek},
        {"kimi_k2", import_deepseek},    {"glm4_moe", import_glm4_moe},     {"glm_moe_dsa", import_glm5},
        {"minimax_m2", import_minimax},  {"minimax", import_minimax},       {"gpt_oss", import_gpt_oss},
        {"nemotron_h", import_nemotron},
    };
    return families;
}

}  // namespace stowage::reader
