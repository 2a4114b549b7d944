#include <string>
#include <utility>

#include "scenarios/reader/drafts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kWidth{1, 10'000'000};
constexpr IntegerRange kHeads{1, 100'000};
constexpr IntegerRange kHeadsOrNone{0, 100'000};

void describe_pattern(Fields& fields, ModelDraft& draft) {
    const auto set = [&](const ScalarValue& read) {
        draft.hybrid.reset();
        const auto* text = std::get_if<std::string>(&read);
        if (text == nullptr) return;
        auto parsed = parse_hybrid_pattern(*text);
        if (const auto* bad = std::get_if<BadPattern>(&parsed))
            return fields.problem("hybrid_layer_pattern", bad->reason);
        draft.hybrid = std::get<HybridPattern>(std::move(parsed));
    };
    fields.scalar({"hybrid_layer_pattern",
                   "a letter a layer: M Mamba, G gated delta net, * attention, - MLP, E experts; | the next pipeline "
                   "stage; after each / a multi-token-prediction layer"},
                  ScalarKind{TextKind{}, "null"}, ScalarValue{}, set);
    fields.refused("hybrid_override_pattern", "write hybrid_layer_pattern");
    fields.refused("is_hybrid_model", "leave it out: hybrid_layer_pattern says it");
}

void describe_linear_attention(Fields& fields, ModelDraft& draft) {
    types::Model& model = draft.model;
    const ScalarValue current = draft.linear_attention ? ScalarValue{Choice{0}} : ScalarValue{};
    fields.scalar({"experimental_attention_variant", "linear attention in the layers of linear_attention_freq"},
                  ScalarKind{ChoiceKind{{"gated_delta_net", "gdn"}}, "null"}, current, [&](const ScalarValue& read) {
                      draft.linear_attention = !std::holds_alternative<std::monostate>(read);
                  });
    fields.frequency({"linear_attention_freq", "n: every n-th layer is attention; or for each layer 1 (linear) or 0"},
                     draft.linear_attention_freq);
    fields.count({"linear_conv_kernel_dim", "taps of its convolution"}, model.linear_conv_kernel_dim, kWidth);
    fields.count({"linear_key_head_dim", "head size of its keys"}, model.linear_key_head_dim, kWidth);
    fields.count({"linear_value_head_dim", "head size of its values"}, model.linear_value_head_dim, kWidth);
    fields.count({"linear_num_key_heads", "heads of its keys"}, model.linear_num_key_heads, kHeads);
    fields.count({"linear_num_value_heads", "heads of its values"}, model.linear_num_value_heads, kHeads);
}

}  // namespace

void describe_hybrid(Fields& fields, ModelDraft& draft) {
    types::Model& model = draft.model;
    describe_pattern(fields, draft);
    fields.count({"mamba_state_dim", "state of a Mamba head"}, model.mamba_state_dim, kWidth);
    fields.count({"mamba_head_dim", "size of a Mamba head"}, model.mamba_head_dim, kWidth);
    fields.count_or_none({"mamba_num_heads", "Mamba heads; 0 or null: 2 x hidden_size / mamba_head_dim"},
                         model.mamba_num_heads, kHeadsOrNone);
    fields.count({"mamba_num_groups", "groups of Mamba heads that share a state's input and output"},
                 model.mamba_num_groups, kHeads);
    describe_linear_attention(fields, draft);
}

}  // namespace stowage::reader
