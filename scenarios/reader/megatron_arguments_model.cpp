#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

// As the scenario language has them (describe_model.cpp).
constexpr IntegerRange kLayers{1, 100'000};
constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kWidthOrNone{0, 10'000'000};
constexpr IntegerRange kHeads{1, 100'000};
constexpr IntegerRange kVocabulary{1, 1'000'000'000};
constexpr NumberRange kProbability{0, 1};

void require(Arguments& arguments, std::string_view name, std::int64_t value) {
    if (value > 0 || arguments.given(name)) return;
    arguments.file_error("argument " + std::string(name) + " is required");
}

void import_sizes(Arguments& arguments, types::Model& model) {
    if (!arguments.count("num_layers", "model.num_layers", model.num_layers, kLayers))
        arguments.count("encoder_num_layers", "model.num_layers", model.num_layers, kLayers);
    arguments.count("hidden_size", "model.hidden_size", model.hidden_size, kWidth);
    arguments.count("ffn_hidden_size", "model.ffn_hidden_size", model.ffn_hidden_size, kWidth);
    arguments.count("num_attention_heads", "model.num_attention_heads", model.num_attention_heads, kHeads);
    arguments.count("kv_channels", "model.kv_channels", model.kv_channels, kWidth);
    arguments.count("max_position_embeddings", "model.max_position_embeddings", model.max_position_embeddings,
                    IntegerRange{0, 1'000'000'000});
    require(arguments, "hidden_size", model.hidden_size);
    require(arguments, "num_attention_heads", model.num_attention_heads);
}

/// num_query_groups counts only beside group_query_attention, and is 1 by default.
void import_query_groups(Arguments& arguments, types::Model& model) {
    std::int64_t groups = 1;
    const bool given = arguments.count("num_query_groups", {}, groups, kHeads);
    if (arguments.flag("group_query_attention", "model.num_query_groups")) {
        arguments.count("num_query_groups", "model.num_query_groups", groups, kHeads);
        model.num_query_groups = groups;
    } else if (given && groups != model.num_attention_heads) {
        arguments.note("num_query_groups", "no effect without group-query-attention, as in Megatron");
    }
}

/// The vocabulary is padded to a multiple of make_vocab_size_divisible_by x tensor-parallel ranks. A tokenizer's own
/// size counts unless vocab_size is given; the null tokenizer adds one token for the end of a document.
void import_vocabulary(Arguments& arguments, types::Model& model) {
    constexpr std::int64_t kGpt2 = 50257;
    arguments.count("make_vocab_size_divisible_by", "model.make_vocab_size_divisible_by",
                    model.make_vocab_size_divisible_by, kWidth);
    const std::string tokenizer = arguments.text("tokenizer_type", {}).value_or("GPT2BPETokenizer");
    const bool given = arguments.count("vocab_size", "model.vocab_size", model.vocab_size, kVocabulary);
    if (given && tokenizer == "NullTokenizer") ++model.vocab_size;
    if (arguments.count("padded_vocab_size", "model.vocab_size", model.vocab_size, kVocabulary)) {
        model.make_vocab_size_divisible_by = 1;
        return;
    }
    if (given) return;
    if (tokenizer == "GPT2BPETokenizer") {
        model.vocab_size = kGpt2;
        return;
    }
    arguments.error("tokenizer_type", "the size of this tokenizer's vocabulary is not known", "give vocab-size");
    model.vocab_size = kGpt2;  // so that nothing else is reported for it
}

void import_activation(Arguments& arguments, types::Model& model) {
    const bool swiglu = arguments.flag("swiglu", "model.swiglu");
    const bool squared = arguments.flag("squared_relu", "model.squared_relu");
    const bool quick = arguments.flag("quick_geglu", "model.quick_geglu");
    if (swiglu && squared) arguments.error("squared_relu", "beside swiglu", "give one activation");
    if (swiglu && quick) arguments.error("quick_geglu", "beside swiglu", "give one activation");
    model.activation = swiglu    ? types::Activation::swiglu
                       : squared ? types::Activation::squared_relu
                       : quick   ? types::Activation::quick_geglu
                                 : types::Activation::gelu;
}

void import_positions(Arguments& arguments, types::Model& model) {
    constexpr std::string_view kKey = "model.position_embedding_type";
    model.position_embedding_type = types::PositionEmbedding::learned_absolute;
    const std::string type = arguments.text("position_embedding_type", kKey).value_or("learned_absolute");
    if (const auto known = types::parse_name<types::PositionEmbedding>(type))
        model.position_embedding_type = *known;
    else if (type == "yarn")  // rotary, with other angles
        model.position_embedding_type = types::PositionEmbedding::rope;
    else
        arguments.cannot_say("position_embedding_type", "position embeddings of type " + type,
                             "rope, yarn, learned_absolute and none can");
    if (arguments.flag("use_rotary_position_embeddings", kKey))
        model.position_embedding_type = types::PositionEmbedding::rope;
    if (arguments.flag("no_position_embedding") && model.position_embedding_type != types::PositionEmbedding::rope)
        arguments.error("no_position_embedding", "Megatron takes this only beside rotary positions",
                        "say position-embedding-type: none");
}

/// What the layers are made of, and with which kernels.
void import_modules(Arguments& arguments, types::Model& model) {
    const std::string impl =
        arguments.text("transformer_impl", "model.transformer_impl").value_or("transformer_engine");
    if (const auto known = types::parse_name<types::TransformerImpl>(impl))
        model.transformer_impl = *known;
    else
        arguments.cannot_say("transformer_impl", "the transformer implementation " + impl,
                             "transformer_engine and local can be described");
    model.masked_softmax_fusion = !arguments.flag("no_masked_softmax_fusion", "model.masked_softmax_fusion");
    model.deterministic_mode = arguments.flag("deterministic_mode", "model.deterministic_mode");
}

void import_norms_and_biases(Arguments& arguments, types::Model& model) {
    model.normalization = types::Normalization::LayerNorm;
    arguments.choice("normalization", "model.normalization", model.normalization);
    model.qk_layernorm = arguments.flag("qk_layernorm", "model.qk_layernorm");
    model.add_bias_linear = !arguments.flag("disable_bias_linear", "model.add_bias_linear");
    model.add_qkv_bias = arguments.flag("add_qkv_bias", "model.add_qkv_bias") || model.add_bias_linear;
    model.untie_embeddings_and_output_weights =
        arguments.flag("untie_embeddings_and_output_weights", "model.untie_embeddings_and_output_weights");
    model.attention_dropout = 0.1;
    model.hidden_dropout = 0.1;
    arguments.number("attention_dropout", "model.attention_dropout", model.attention_dropout, kProbability);
    arguments.number("hidden_dropout", "model.hidden_dropout", model.hidden_dropout, kProbability);
    model.attention_output_gate = arguments.flag("attention_output_gate", "model.attention_output_gate");
    arguments.choice("softmax_type", "model.softmax_type", model.softmax_type);
}

/// window_size is a pair: tokens before and after. Every n-th layer is not windowed, or the list says 1 where one is.
void import_window(Arguments& arguments, ModelDraft& draft) {
    constexpr std::string_view kKey = "model.window_size";
    if (const auto pair = arguments.text("window_size", kKey)) {
        std::int64_t before = 0;
        const std::size_t digit = pair->find_first_of("0123456789");
        const std::size_t end = digit == std::string::npos ? digit : pair->find_first_not_of("0123456789", digit);
        if (digit != std::string::npos && end - digit < 10 && (digit == 0 || (*pair)[digit - 1] != '-'))
            before = std::stoll(pair->substr(digit, end - digit));
        if (before > 0)
            draft.model.window_size = before;
        else
            arguments.error("window_size", "found '" + *pair + "', expected a pair such as (128,0)");
    }
    if (!arguments.given("window_size"))
        return arguments.pass_over("window_attn_skip_freq", "no effect without window-size");
    arguments.frequency("window_attn_skip_freq", "model.window_attn_skip_freq", draft.window_attn_skip_freq);
}

/// Megatron's command line has these defaults; its configuration class has others, which only programs see.
void import_latent_attention(Arguments& arguments, ModelDraft& draft) {
    types::Model& model = draft.model;
    model.multi_latent_attention = arguments.flag("multi_latent_attention", "model.multi_latent_attention");
    if (!model.multi_latent_attention) {
        for (const char* name :
             {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "rope_type"})
            arguments.pass_over(name, "no effect without multi-latent-attention");
        return;
    }
    model.kv_lora_rank = 32;
    model.qk_head_dim = 128;
    model.qk_pos_emb_head_dim = 64;
    model.v_head_dim = 128;
    draft.q_lora_rank = 0;
    draft.rope_type = types::RopeType::yarn;
    arguments.count("q_lora_rank", "model.q_lora_rank", draft.q_lora_rank, kWidth);
    arguments.count("kv_lora_rank", "model.kv_lora_rank", model.kv_lora_rank, kWidth);
    arguments.count("qk_head_dim", "model.qk_head_dim", model.qk_head_dim, kWidth);
    arguments.count("qk_pos_emb_head_dim", "model.qk_pos_emb_head_dim", model.qk_pos_emb_head_dim, kWidth);
    arguments.count("v_head_dim", "model.v_head_dim", model.v_head_dim, kWidth);
    arguments.choice("rope_type", "model.rope_type", *draft.rope_type);
}

void import_expert_widths(Arguments& arguments, types::Model& model) {
    model.moe_router_topk = 2;
    arguments.count("moe_router_topk", "model.moe_router_topk", model.moe_router_topk, IntegerRange{1, 100'000});
    arguments.count("moe_ffn_hidden_size", "model.moe_ffn_hidden_size", model.moe_ffn_hidden_size, kWidth);
    arguments.count("moe_shared_expert_intermediate_size", "model.moe_shared_expert_intermediate_size",
                    model.moe_shared_expert_intermediate_size, kWidthOrNone);
    model.moe_shared_expert_gate = arguments.flag("moe_shared_expert_gate", "model.moe_shared_expert_gate");
    arguments.count("moe_latent_size", "model.moe_latent_size", model.moe_latent_size, kWidthOrNone);
    arguments.choice("moe_router_score_function", "model.moe_router_score_function", model.moe_router_score_function);
    model.moe_router_pre_softmax = arguments.flag("moe_router_pre_softmax", "model.moe_router_pre_softmax");
    arguments.count("moe_router_num_groups", "model.moe_router_num_groups", model.moe_router_num_groups,
                    IntegerRange{1, 100'000});
    arguments.count("moe_router_group_topk", "model.moe_router_group_topk", model.moe_router_group_topk,
                    IntegerRange{1, 100'000});
    arguments.number("moe_router_topk_scaling_factor", "model.moe_router_topk_scaling_factor",
                     model.moe_router_topk_scaling_factor, NumberRange{1e-6, 1e6});
    model.moe_router_enable_expert_bias =
        arguments.flag("moe_router_enable_expert_bias", "model.moe_router_enable_expert_bias");
    arguments.number("moe_expert_capacity_factor", "model.moe_expert_capacity_factor", model.moe_expert_capacity_factor,
                     NumberRange{-1, 1e6});
    if (model.moe_expert_capacity_factor && *model.moe_expert_capacity_factor < 0)
        model.moe_expert_capacity_factor.reset();  // as Megatron's configuration does
    model.moe_pad_expert_input_to_capacity =
        arguments.flag("moe_pad_expert_input_to_capacity", "model.moe_pad_expert_input_to_capacity");
    model.moe_permute_fusion = arguments.flag("moe_permute_fusion", "model.moe_permute_fusion");
    model.moe_grouped_gemm = arguments.flag("moe_grouped_gemm", "model.moe_grouped_gemm");
    if (!model.moe_grouped_gemm)
        arguments.note("moe-grouped-gemm is not set: counted in the memory; timed as one grouped GEMM all the same");
}

void import_experts(Arguments& arguments, ModelDraft& draft) {
    types::Model& model = draft.model;
    if (!arguments.count("num_experts", "model.num_experts", model.num_experts, IntegerRange{0, 100'000}))
        arguments.count("num_moe_experts", "model.num_experts", model.num_experts, IntegerRange{0, 100'000});
    if (!model.has_experts()) return;
    import_expert_widths(arguments, model);
    arguments.frequency("moe_layer_freq", "model.moe_layer_freq", draft.moe_layer_freq);
}

}  // namespace

void import_model(Arguments& arguments, ScenarioDraft& draft) {
    types::Model& model = draft.model.model;
    import_sizes(arguments, model);
    import_query_groups(arguments, model);
    import_vocabulary(arguments, model);
    import_activation(arguments, model);
    import_positions(arguments, model);
    import_norms_and_biases(arguments, model);
    import_modules(arguments, model);
    import_latent_attention(arguments, draft.model);
    import_mixers(arguments, draft.model);
    if (!draft.model.hybrid) require(arguments, "num_layers", model.num_layers);
    import_window(arguments, draft.model);
    import_experts(arguments, draft.model);
    arguments.count("mtp_num_layers", "model.mtp_num_layers", model.mtp_num_layers, IntegerRange{0, 1000});
    arguments.number("mtp_loss_scaling_factor", "model.mtp_loss_scaling_factor", model.mtp_loss_scaling_factor,
                     NumberRange{0, 1e6});
}

}  // namespace stowage::reader
