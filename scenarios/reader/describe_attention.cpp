#include <string>
#include <vector>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kWidthOrNone{0, 10'000'000};
constexpr IntegerRange kWindow{-1, 1'000'000'000};

void describe_latent_attention(Fields& fields, ModelDraft& draft) {
    constexpr std::int64_t kDefaultRank = 512;
    types::Model& model = draft.model;
    fields.flag({"multi_latent_attention",
                 "keys and values from a compressed latent; num_query_groups and kv_channels "
                 "then mean nothing"},
                model.multi_latent_attention);
    fields.scalar({"q_lora_rank", "width of the compressed query; null or 0: not compressed"},
                  ScalarKind{kWidthOrNone, "null"}, draft.q_lora_rank.value_or(kDefaultRank),
                  [&](const ScalarValue& read) {
                      const auto* rank = std::get_if<std::int64_t>(&read);
                      draft.q_lora_rank = rank != nullptr ? *rank : 0;
                  });
    fields.count({"kv_lora_rank", "width of the compressed keys and values; default 512"}, model.kv_lora_rank, kWidth);
    fields.count({"qk_head_dim", "head size of query and key without the rotary part; default 128"}, model.qk_head_dim,
                 kWidth);
    fields.count({"qk_pos_emb_head_dim", "rotary part of it; default 64"}, model.qk_pos_emb_head_dim, kWidth);
    fields.count({"v_head_dim", "head size of the value; default 128"}, model.v_head_dim, kWidth);
    fields.optional_choice({"rope_type", "rotary embedding; default yarn with multi_latent_attention, else rope"},
                           draft.rope_type);
}

/// The left side of Megatron's window (left, right). Causal attention sees nothing on the right whatever it says.
void describe_window(Fields& fields, types::Model& model) {
    const auto set = [&](std::int64_t left) {
        model.window_size.reset();
        if (left >= 0) model.window_size = left;
    };
    const auto set_pair = [&](const std::vector<ScalarValue>& sides) {
        if (sides.size() != 2)
            return fields.problem("window_size", "found " + std::to_string(sides.size()) +
                                                     " items, expected [tokens before, tokens after]");
        if (std::get<std::int64_t>(sides[1]) > 0)
            return fields.problem("window_size", "found tokens after a token, expected 0 or -1: attention is causal");
        set(std::get<std::int64_t>(sides[0]));
    };
    fields.list({"window_size", "tokens before a token that it sees, or [before, 0]; -1 or null: all"},
                ScalarKind{kWindow}, set_pair, ScalarKind{kWindow, "null"}, [&](const ScalarValue& read) {
                    const auto* left = std::get_if<std::int64_t>(&read);
                    set(left != nullptr ? *left : -1);
                });
}

}  // namespace

void describe_attention(Fields& fields, ModelDraft& draft) {
    types::Model& model = draft.model;
    fields.flag({"add_qkv_bias", "biases in the QKV projection"}, model.add_qkv_bias);
    fields.flag({"qk_layernorm", "norms on queries and keys"}, model.qk_layernorm);
    fields.choice({"qk_norm_span", "what they span: one head, or the width of all heads of a rank"},
                  model.qk_norm_span);
    fields.flag({"attention_output_gate", "a gate as wide as the query"}, model.attention_output_gate);
    fields.choice({"softmax_type", "learnable and off-by-one: with an attention sink"}, model.softmax_type);
    describe_window(fields, model);
    fields.frequency({"window_attn_skip_freq", "n: every n-th layer sees all; or for each layer 1 (windowed) or 0"},
                     draft.window_attn_skip_freq);
    describe_latent_attention(fields, draft);
}

}  // namespace stowage::reader
