#include "planner/layers/stowage/attention_half.hpp"
#include "planner/layers/stowage/mlp_half.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"

namespace stowage::layers {

LayerScript stowage_layer(const Dimensions& dimensions, const types::Scenario& scenario) {
    ScriptBuilder script(ScriptKind::dense_layer, "dense layer");
    StowageWriter writer(script, dimensions, scenario);
    script.boundary(dimensions.hidden_shape(), dimensions.hidden_shape(), DataType::bf16);
    AttentionHalf attention(writer);
    MlpHalf mlp(writer);
    script.begin_forward(Part::attn_norm);
    const Slot middle = script.tensor("residual.attention", dimensions.hidden_shape());
    attention.forward(middle);
    script.edge(GraphEdge::mixer);
    mlp.forward(middle);
    script.drop(middle);

    script.begin_backward(Part::mlp_fc2);
    const Slot gradient = script.tensor("residual.attention_gradient", dimensions.hidden_shape());
    mlp.backward(gradient);
    script.edge(GraphEdge::mixer);
    attention.backward(gradient);
    return script.build();
}

}  // namespace stowage::layers
