#include "planner/layers/stowage/attention_half.hpp"
#include "planner/layers/stowage/latent_attention_half.hpp"
#include "planner/layers/stowage/mlp_half.hpp"
#include "planner/layers/stowage/moe_half.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"

namespace stowage::layers {

namespace {

/// `Attention` and `FeedForward`, whose backward begins in `last`.
template <class Attention, class FeedForward>
LayerScript layer(ScriptBuilder script, Part last, const Dimensions& dimensions, const types::Scenario& scenario) {
    StowageWriter writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), dimensions.hidden_shape(), DataType::bf16);
    Attention attention(writer);
    FeedForward feed_forward(writer);
    script.begin_forward(Part::attn_norm);
    const Slot middle = script.tensor("residual.attention", dimensions.hidden_shape());
    attention.forward(middle);
    script.edge(GraphEdge::mixer);
    feed_forward.forward(middle);
    script.drop(middle);

    script.begin_backward(last);
    const Slot gradient = script.tensor("residual.attention_gradient", dimensions.hidden_shape());
    feed_forward.backward(gradient);
    script.edge(GraphEdge::mixer);
    attention.backward(gradient);
    return script.build();
}

/// With the attention that the model has.
template <class FeedForward>
LayerScript layer_of_model(ScriptBuilder script, Part last, const Dimensions& dimensions,
                           const types::Scenario& scenario) {
    if (scenario.model.multi_latent_attention)
        return layer<LatentAttentionHalf, FeedForward>(std::move(script), last, dimensions, scenario);
    return layer<AttentionHalf, FeedForward>(std::move(script), last, dimensions, scenario);
}

}  // namespace

LayerScript stowage_layer(const Dimensions& dimensions, const types::Scenario& scenario) {
    return layer_of_model<MlpHalf>(ScriptBuilder(ScriptKind::dense_layer, "dense layer"), Part::mlp_fc2, dimensions,
                                   scenario);
}

LayerScript stowage_moe_layer(const Dimensions& dimensions, const types::Scenario& scenario) {
    return layer_of_model<MoeHalf>(ScriptBuilder(ScriptKind::moe_layer, "MoE layer"), Part::combine, dimensions,
                                   scenario);
}

}  // namespace stowage::layers
