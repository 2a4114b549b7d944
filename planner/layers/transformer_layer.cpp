#include "planner/layers/transformer_layer.hpp"

#include <variant>

#include "planner/layers/attention.hpp"
#include "planner/layers/dense_mlp.hpp"
#include "planner/layers/mla.hpp"
#include "planner/layers/moe.hpp"
#include "planner/layers/residual.hpp"

namespace stowage::layers {
namespace {

/// Attention and its residual sum; `middle` is the residual stream between the two halves of the layer.
struct AttentionHalf {
    std::variant<Attention, LatentAttention> attention;
    ResidualSum sum;
    Slot middle{};
};

bool latent(const Writer& writer) { return writer.model.multi_latent_attention; }

Slot output_of(const AttentionHalf& half) {
    if (const auto* plain = std::get_if<Attention>(&half.attention)) return plain->projection.output;
    return std::get<LatentAttention>(half.attention).projection.output;
}

AttentionHalf attention_half_forward(Writer& writer, const LayerTraits& traits) {
    AttentionHalf half;
    writer.script.begin_forward(Part::attn_norm);
    if (latent(writer))
        half.attention = latent_attention_forward(writer, kInput, traits.windowed);
    else
        half.attention = attention_forward(writer, kInput, traits.windowed);
    half.middle = writer.script.tensor("residual.attention", writer.dim.hidden_shape());
    half.sum = residual_forward(writer, "attention_sum", writer.model.add_bias_linear, half.middle);
    if (latent(writer)) {
        writer.script.part(Part::attn_norm);
        writer.script.commit(Module::attn_norm, {kInput});
    }
    writer.script.drop(output_of(half));
    return half;
}

/// `gradient`: of the middle stream; dropped. Makes kGradInput.
void attention_half_backward(Writer& writer, AttentionHalf& half, Slot gradient) {
    if (latent(writer)) {
        writer.script.part(Part::attn_norm);
        writer.script.commit(Module::attn_norm);
    }
    const std::optional<Slot> branch = residual_backward(writer, half.sum);
    if (auto* latents = std::get_if<LatentAttention>(&half.attention))
        latent_attention_backward(writer, *latents, kGradInput);
    else
        attention_backward(writer, std::get<Attention>(half.attention), kGradInput);
    if (branch) writer.script.drop(*branch);
    join_gradients(writer, "attention_sum", gradient);
}

void attention_half_parameters(Writer& writer) {
    if (latent(writer))
        latent_attention_parameters(writer);
    else
        attention_parameters(writer);
}

void set_boundary(Writer& writer) {
    writer.script.boundary(writer.dim.hidden_shape(), writer.dim.hidden_shape(), DataType::bf16);
}

LayerScript dense_layer(const Dimensions& dimensions, const types::Scenario& scenario, const LayerTraits& traits) {
    ScriptBuilder script(ScriptKind::dense_layer, name_of(traits));
    Writer writer(script, dimensions, scenario);
    set_boundary(writer);
    attention_half_parameters(writer);
    dense_mlp_parameters(writer);

    AttentionHalf half = attention_half_forward(writer, traits);
    const DenseMlp mlp = dense_mlp_forward(writer, half.middle);
    const ResidualSum sum = residual_forward(writer, "mlp_sum", writer.model.add_bias_linear, kOutput);
    script.drop(mlp.fc2.output);
    script.drop(half.middle);
    script.drop(kInput);

    script.begin_backward(Part::residual);
    const std::optional<Slot> branch = residual_backward(writer, sum);
    const Slot middle_gradient = script.tensor("residual.attention_gradient", dimensions.hidden_shape());
    dense_mlp_backward(writer, mlp, middle_gradient);
    if (branch) script.drop(*branch);
    join_gradients(writer, "mlp_sum", kGradOutput);
    attention_half_backward(writer, half, middle_gradient);
    return script.build();
}

LayerScript moe_layer(const Dimensions& dimensions, const types::Scenario& scenario, const LayerTraits& traits) {
    ScriptBuilder script(ScriptKind::moe_layer, name_of(traits));
    Writer writer(script, dimensions, scenario);
    set_boundary(writer);
    attention_half_parameters(writer);
    moe_parameters(writer);

    AttentionHalf half = attention_half_forward(writer, traits);
    const Moe moe = moe_forward(writer, half.middle);
    const ResidualSum sum = residual_forward(writer, "mlp_sum", false, kOutput);
    script.part(Part::mlp_norm);
    script.commit(Module::mlp_norm, {half.middle});
    script.drop(moe.output);
    script.drop(half.middle);
    script.drop(kInput);

    script.begin_backward(Part::mlp_norm);
    script.commit(Module::mlp_norm);
    const std::optional<Slot> branch = residual_backward(writer, sum);
    const Slot middle_gradient = script.tensor("residual.attention_gradient", dimensions.hidden_shape());
    moe_backward(writer, moe, middle_gradient);
    if (branch) script.drop(*branch);
    script.part(Part::mlp_norm);
    script.start(Module::mlp_norm);
    join_gradients(writer, "mlp_sum", kGradOutput);
    attention_half_backward(writer, half, middle_gradient);
    return script.build();
}

}  // namespace

LayerTraits traits_of(const types::Model& model, std::int64_t layer) {
    return {model.mixer_of(layer), model.feed_forward_of(layer), model.is_windowed_layer(layer)};
}

std::string name_of(const LayerTraits& traits) {
    std::string name = traits.feed_forward == types::FeedForward::moe ? "MoE layer" : "dense layer";
    return traits.windowed ? name + ", windowed" : name;
}

LayerScript transformer_layer(const Dimensions& dimensions, const types::Scenario& scenario,
                              const LayerTraits& traits) {
    return traits.feed_forward == types::FeedForward::moe ? moe_layer(dimensions, scenario, traits)
                                                          : dense_layer(dimensions, scenario, traits);
}

}  // namespace stowage::layers
