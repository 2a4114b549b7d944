#include "planner/layers/moe_rows.hpp"

namespace stowage::layers {

std::int64_t expert_rows(const Writer& writer) {
    const Dimensions& dim = writer.dim;
    if (!writer.fp8()) return dim.expert_tokens;
    const std::int64_t unit = writer.scenario.precision == types::Precision::mxfp8 ? 32 : 16;
    const std::int64_t each = (dim.expert_tokens + dim.local_experts - 1) / dim.local_experts;
    return (each + unit - 1) / unit * unit * dim.local_experts;
}

bool pads_experts(const Writer& writer) { return expert_rows(writer) != writer.dim.expert_tokens; }

TokenRows pad_tokens(Writer& writer, TokenRows tokens) {
    if (!pads_experts(writer)) return tokens;
    TokenRows result;
    result.rows = writer.make("expert_fc1.padded", {expert_rows(writer), writer.dim.routed_width});
    result.weights = writer.make("expert_fc1.padded.weights", {expert_rows(writer)}, DataType::fp32);
    result.weighted = true;
    writer.memory_kernel("expert_fc1.pad", 4 * expert_rows(writer) * writer.dim.routed_width);
    return result;
}

Slot unpad_output(Writer& writer, Slot output) {
    if (!pads_experts(writer)) return output;
    const Slot result = writer.make("expert_fc2.unpadded", {writer.dim.expert_tokens, writer.dim.routed_width});
    writer.memory_kernel("expert_fc2.unpad", 4 * expert_rows(writer) * writer.dim.routed_width);
    writer.script.drop(output);
    return result;
}

TokenRows unpad_gradients(Writer& writer, TokenRows tokens) {
    if (!pads_experts(writer)) return tokens;
    TokenRows result;
    result.weighted = true;
    result.rows = writer.make("expert_fc1.unpadded_gradient", {writer.dim.expert_tokens, writer.dim.routed_width});
    result.weights = writer.make("expert_fc1.unpadded_gradient.weights", {writer.dim.expert_tokens}, DataType::fp32);
    writer.memory_kernel("expert_fc1.unpad", 4 * expert_rows(writer) * writer.dim.routed_width);
    writer.script.drop(tokens.rows);
    writer.script.drop(tokens.weights);
    return result;
}

Slot pad_gradient(Writer& writer, Slot gradient) {
    if (!pads_experts(writer)) return gradient;
    const Slot result = writer.make("expert_fc2.padded_gradient", {expert_rows(writer), writer.dim.routed_width});
    writer.memory_kernel("expert_fc2.pad", 4 * expert_rows(writer) * writer.dim.routed_width);
    writer.script.drop(gradient);
    return result;
}

}  // namespace stowage::layers
