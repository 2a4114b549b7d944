#include "planner/layers/moe_bias.hpp"

#include "planner/layers/moe_rows.hpp"

namespace stowage::layers {

ExpertBias expert_bias_forward(Writer& writer, Slot output, Slot weights) {
    ScriptBuilder& script = writer.script;
    if (!writer.model.add_bias_linear) return {{}, output};
    const Shape shape{expert_rows(writer), writer.dim.routed_width};
    const std::int64_t elements = shape[0] * shape[1];
    script.part(Part::expert_fc2);
    ExpertBias bias;
    bias.weights = script.save(weights);
    const Slot pieces = writer.make("expert_fc2.biased_pieces", shape, DataType::fp32);
    writer.memory_kernel("expert_fc2.bias", (2 + 4) * elements);
    const Slot joined = writer.make("expert_fc2.biased_fp32", shape, DataType::fp32);
    writer.memory_kernel("expert_fc2.bias_join", (4 + 4) * elements);
    script.drop(pieces);
    bias.output = writer.make("expert_fc2.biased", shape);
    writer.memory_kernel("expert_fc2.bias_round", (4 + 2) * elements);
    script.drop(joined);
    script.drop(output);
    return bias;
}

ExpertBiasGradients expert_bias_backward(Writer& writer, const ExpertBias& bias, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    if (!bias.weights) return {gradient, {}};
    const Shape shape{expert_rows(writer), dim.routed_width};
    const std::int64_t elements = shape[0] * shape[1];
    script.part(Part::expert_fc2);
    const Slot wide = writer.make("expert_fc2.bias.wide_gradient", shape, DataType::fp32);
    writer.memory_kernel("expert_fc2.bias.widen", (2 + 4) * elements);
    script.drop(gradient);
    const Slot pieces = writer.make("expert_fc2.bias.piece_gradients", shape);
    writer.memory_kernel("expert_fc2.bias.round_pieces", (4 + 2) * elements);
    script.read(*bias.weights);
    const Slot products = writer.make(
        "expert_fc2.bias.products", {(shape[0] + dim.local_experts - 1) / dim.local_experts, shape[1]}, DataType::fp32);
    const Slot weights = writer.make("expert_fc2.bias.weights_gradient", {shape[0]}, DataType::fp32);
    writer.memory_kernel("expert_fc2.bias.products", 2 * (4 + 4 + 4) * elements);  // once for each of the two sums
    script.drop(products);
    writer.accumulate_small_gradient("expert_fc2.bias", {dim.local_experts, dim.routed_width});
    script.forget(*bias.weights);
    script.drop(wide);
    const Slot rows = writer.make("expert_fc2.bias.input_gradient", shape);
    writer.memory_kernel("expert_fc2.bias.join_pieces", (2 + 2) * elements);
    script.drop(pieces);
    return {rows, weights};
}

}  // namespace stowage::layers
