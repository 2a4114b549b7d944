#include "planner/layers/transformer_layer.hpp"

#include <algorithm>
#include <variant>

#include "planner/layers/attention.hpp"
#include "planner/layers/dense_mlp.hpp"
#include "planner/layers/gated_delta_net.hpp"
#include "planner/layers/mamba.hpp"
#include "planner/layers/mla.hpp"
#include "planner/layers/moe.hpp"
#include "planner/layers/residual.hpp"

namespace stowage::layers {
namespace {

using types::FeedForward;
using types::Mixer;

/// The mixer and its residual sum.
struct MixerHalf {
    std::variant<Attention, LatentAttention, Mamba, GatedDeltaNet> mixer;
    ResidualSum sum;
};

struct FeedForwardHalf {
    std::variant<DenseMlp, Moe> part;
    ResidualSum sum;
};

bool latent(const Writer& writer, const LayerTraits& traits) {
    return traits.mixer == Mixer::attention && writer.model.multi_latent_attention;
}

// -------------------------------------------------------------------------------------------------------------- mixer

void run_mixer(Writer& writer, const LayerTraits& traits, MixerHalf& half) {
    if (traits.mixer == Mixer::mamba)
        half.mixer = mamba_forward(writer, kInput);
    else if (traits.mixer == Mixer::gated_delta_net)
        half.mixer = gated_delta_net_forward(writer, kInput);
    else if (latent(writer, traits))
        half.mixer = latent_attention_forward(writer, kInput, traits.windowed);
    else
        half.mixer = attention_forward(writer, kInput, traits.windowed);
}

Slot output_of(const MixerHalf& half) {
    if (const auto* mamba = std::get_if<Mamba>(&half.mixer)) return mamba->out_proj.output;
    if (const auto* net = std::get_if<GatedDeltaNet>(&half.mixer)) return net->out_proj.output;
    if (const auto* plain = std::get_if<Attention>(&half.mixer)) return plain->projection.output;
    return std::get<LatentAttention>(half.mixer).projection.output;
}

/// `output`: the residual stream after the mixer; allocated.
MixerHalf mixer_half_forward(Writer& writer, const LayerTraits& traits, Slot output) {
    MixerHalf half;
    run_mixer(writer, traits, half);
    const bool bias = traits.mixer == Mixer::attention && writer.model.add_bias_linear;
    half.sum = residual_forward(writer, "attention_sum", bias, output);
    if (latent(writer, traits)) {
        writer.script.part(Part::attn_norm);
        writer.script.commit(Module::attn_norm, {kInput});
    }
    writer.script.drop(output_of(half));
    return half;
}

void mixer_backward(Writer& writer, MixerHalf& half) {
    if (auto* latents = std::get_if<LatentAttention>(&half.mixer))
        latent_attention_backward(writer, *latents, kGradInput);
    else if (const auto* mamba = std::get_if<Mamba>(&half.mixer))
        mamba_backward(writer, *mamba, kGradInput);
    else if (const auto* net = std::get_if<GatedDeltaNet>(&half.mixer))
        gated_delta_net_backward(writer, *net, kGradInput);
    else
        attention_backward(writer, std::get<Attention>(half.mixer), kGradInput);
}

/// `gradient`: of the stream after the mixer; dropped. Makes kGradInput.
void mixer_half_backward(Writer& writer, const LayerTraits& traits, MixerHalf& half, Slot gradient) {
    if (latent(writer, traits)) {
        writer.script.part(Part::attn_norm);
        writer.script.commit(Module::attn_norm);
    }
    const std::optional<Slot> branch = residual_backward(writer, half.sum);
    mixer_backward(writer, half);
    if (branch) writer.script.drop(*branch);
    join_gradients(writer, "attention_sum", gradient);
}

void mixer_parameters(Writer& writer, const LayerTraits& traits) {
    if (traits.mixer == Mixer::mamba)
        mamba_parameters(writer);
    else if (traits.mixer == Mixer::gated_delta_net)
        gated_delta_net_parameters(writer);
    else if (latent(writer, traits))
        latent_attention_parameters(writer);
    else if (traits.mixer == Mixer::attention)
        attention_parameters(writer);
}

// ------------------------------------------------------------------------------------------------------- feed-forward

/// Makes kOutput from the stream `input`.
FeedForwardHalf feed_forward_half_forward(Writer& writer, const LayerTraits& traits, Slot input) {
    ScriptBuilder& script = writer.script;
    FeedForwardHalf half;
    if (traits.feed_forward == FeedForward::moe) {
        const Moe moe = moe_forward(writer, input);
        half.sum = residual_forward(writer, "mlp_sum", false, kOutput);
        script.part(Part::mlp_norm);
        script.commit(Module::mlp_norm, {input});
        script.drop(moe.output);
        half.part = moe;
    } else {
        const DenseMlp mlp = dense_mlp_forward(writer, input);
        half.sum = residual_forward(writer, "mlp_sum", writer.model.add_bias_linear, kOutput);
        script.drop(mlp.fc2.output);
        half.part = mlp;
    }
    return half;
}

/// Makes `grad_input`, the gradient of the stream before this half.
void feed_forward_half_backward(Writer& writer, const FeedForwardHalf& half, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    const Moe* moe = std::get_if<Moe>(&half.part);
    if (moe != nullptr) script.commit(Module::mlp_norm);
    const std::optional<Slot> branch = residual_backward(writer, half.sum);
    if (moe != nullptr)
        moe_backward(writer, *moe, grad_input);
    else
        dense_mlp_backward(writer, std::get<DenseMlp>(half.part), grad_input);
    if (branch) script.drop(*branch);
    if (moe != nullptr) {
        script.part(Part::mlp_norm);
        script.start(Module::mlp_norm);
    }
    join_gradients(writer, "mlp_sum", kGradOutput);
}

void feed_forward_parameters(Writer& writer, const LayerTraits& traits) {
    if (traits.feed_forward == FeedForward::moe) moe_parameters(writer);
    if (traits.feed_forward == FeedForward::dense) dense_mlp_parameters(writer);
}

// -------------------------------------------------------------------------------------------------------------- layers

/// The layer's first part in each direction.
Part first_part(const LayerTraits& traits) {
    if (traits.mixer == Mixer::attention) return Part::attn_norm;
    return traits.mixer == Mixer::none ? Part::mlp_norm : Part::mixer_in_proj;
}

Part last_part(const LayerTraits& traits) {
    return traits.feed_forward == FeedForward::moe ? Part::mlp_norm : Part::residual;
}

/// The stream between the halves; the layer's input or output where one of them is missing.
Slot middle_of(Writer& writer, const LayerTraits& traits) {
    if (traits.mixer == Mixer::none) return kInput;
    if (traits.feed_forward == FeedForward::none) return kOutput;
    return writer.script.tensor("residual.attention", writer.dim.hidden_shape());
}

Slot middle_gradient_of(Writer& writer, const LayerTraits& traits) {
    if (traits.mixer == Mixer::none) return kGradInput;
    if (traits.feed_forward == FeedForward::none) return kGradOutput;
    return writer.script.tensor("residual.attention_gradient", writer.dim.hidden_shape());
}

}  // namespace

LayerTraits traits_of(const types::Model& model, std::int64_t layer) {
    return {model.mixer_of(layer), model.feed_forward_of(layer),
            model.mixer_of(layer) == Mixer::attention && model.is_windowed_layer(layer)};
}

std::string name_of(const LayerTraits& traits) {
    static constexpr const char* kAlone[] = {"attention layer", "Mamba layer", "gated-delta-net layer", ""};
    static constexpr const char* kBefore[] = {"", "Mamba and ", "gated-delta-net and ", ""};
    const auto mixer = static_cast<std::size_t>(traits.mixer);
    std::string name;
    if (traits.feed_forward == FeedForward::none)
        name = kAlone[mixer];
    else if (traits.mixer == Mixer::none)
        name = traits.feed_forward == FeedForward::moe ? "experts layer" : "MLP layer";
    else
        name = kBefore[mixer] + std::string{traits.feed_forward == FeedForward::moe ? "MoE layer" : "dense layer"};
    return traits.windowed ? name + ", windowed" : name;
}

bool is_mamba(const LayerScript& script) {
    return std::any_of(script.parameters.begin(), script.parameters.end(),
                       [](const Parameter& parameter) { return parameter.name == "gated_norm.weight"; });
}

LayerScript transformer_layer(const Dimensions& dimensions, const types::Scenario& scenario,
                              const LayerTraits& traits) {
    const bool moe = traits.feed_forward == FeedForward::moe;
    ScriptBuilder script(moe ? ScriptKind::moe_layer : ScriptKind::dense_layer, name_of(traits));
    Writer writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), dimensions.hidden_shape(), DataType::bf16);
    mixer_parameters(writer, traits);
    feed_forward_parameters(writer, traits);
    const bool mixes = traits.mixer != Mixer::none;
    const bool feeds = traits.feed_forward != FeedForward::none;

    MixerHalf mixer;
    FeedForwardHalf feed_forward;
    script.begin_forward(first_part(traits));
    const Slot middle = middle_of(writer, traits);
    if (mixes) mixer = mixer_half_forward(writer, traits, middle);
    script.edge(GraphEdge::mixer);
    if (feeds) feed_forward = feed_forward_half_forward(writer, traits, middle);
    if (mixes && feeds) script.drop(middle);
    script.drop(kInput);

    script.begin_backward(last_part(traits));
    const Slot gradient = middle_gradient_of(writer, traits);
    if (feeds) feed_forward_half_backward(writer, feed_forward, gradient);
    script.edge(GraphEdge::mixer);
    if (mixes) mixer_half_backward(writer, traits, mixer, gradient);
    return script.build();
}

}  // namespace stowage::layers
