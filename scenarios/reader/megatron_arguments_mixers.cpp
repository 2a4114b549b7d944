#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

constexpr IntegerRange kWidth{1, 10'000'000};

void import_pattern(Arguments& arguments, std::string_view name, ModelDraft& draft) {
    const auto text = arguments.text(name, "model.hybrid_layer_pattern");
    if (!text) return;
    auto pattern = parse_hybrid_pattern(*text);
    if (const auto* bad = std::get_if<BadPattern>(&pattern)) return arguments.error(name, "found " + bad->reason);
    draft.hybrid = std::get<HybridPattern>(std::move(pattern));
    const auto layers = static_cast<std::int64_t>(draft.hybrid->mixers.size());
    std::int64_t& num_layers = draft.model.num_layers;
    if (num_layers > 0 && num_layers != layers)
        arguments.error(
            name, "found " + std::to_string(layers) + " layers, expected num-layers " + std::to_string(num_layers));
    num_layers = layers;
}

void import_mamba(Arguments& arguments, types::Model& model) {
    arguments.count("mamba_state_dim", "model.mamba_state_dim", model.mamba_state_dim, kWidth);
    arguments.count("mamba_head_dim", "model.mamba_head_dim", model.mamba_head_dim, kWidth);
    arguments.count("mamba_num_groups", "model.mamba_num_groups", model.mamba_num_groups, kWidth);
    arguments.count("mamba_num_heads", "model.mamba_num_heads", model.mamba_num_heads, kWidth);
}

void import_delta_net(Arguments& arguments, types::Model& model) {
    arguments.count("linear_conv_kernel_dim", "model.linear_conv_kernel_dim", model.linear_conv_kernel_dim, kWidth);
    arguments.count("linear_key_head_dim", "model.linear_key_head_dim", model.linear_key_head_dim, kWidth);
    arguments.count("linear_value_head_dim", "model.linear_value_head_dim", model.linear_value_head_dim, kWidth);
    arguments.count("linear_num_key_heads", "model.linear_num_key_heads", model.linear_num_key_heads, kWidth);
    arguments.count("linear_num_value_heads", "model.linear_num_value_heads", model.linear_num_value_heads, kWidth);
}

void import_linear_attention(Arguments& arguments, ModelDraft& draft) {
    const auto variant = arguments.text("experimental_attention_variant", "model.experimental_attention_variant");
    if (!variant) return arguments.pass_over("linear_", "no effect without experimental-attention-variant");
    if (*variant != "gated_delta_net" && *variant != "gdn")
        return arguments.cannot_say("experimental_attention_variant", "attention of type " + *variant,
                                    "gated_delta_net and full attention can be described");
    draft.linear_attention = true;
    arguments.frequency("linear_attention_freq", "model.linear_attention_freq", draft.linear_attention_freq);
    import_delta_net(arguments, draft.model);
}

}  // namespace

void import_mixers(Arguments& arguments, ModelDraft& draft) {
    const bool newer = arguments.given("hybrid_layer_pattern");
    const bool hybrid = newer || arguments.given("hybrid_override_pattern");
    if (arguments.flag("is_hybrid_model") && !hybrid)
        arguments.error("is_hybrid_model", "which layers are which is not known", "give hybrid-layer-pattern");
    if (!hybrid) {
        arguments.pass_over("mamba_", "no effect without hybrid-layer-pattern");
        return import_linear_attention(arguments, draft);
    }
    import_pattern(arguments, newer ? "hybrid_layer_pattern" : "hybrid_override_pattern", draft);
    import_mamba(arguments, draft.model);
    import_delta_net(arguments, draft.model);
}

}  // namespace stowage::reader
