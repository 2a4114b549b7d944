#include "planner/layers/stowage/layer_linear.hpp"

namespace stowage::layers {

LayerLinear::LayerLinear(StowageWriter& writer, const LinearWeights& weights, bool has_input_again)
    : writer_(writer), weights_(weights), keeps_copy_(weights.fp8 && !has_input_again) {
    if (weights.fp8) fp8_.emplace(writer, weights, keeps_copy_);
}

void LayerLinear::columns_forward(CallOperand input, Slot output, std::optional<Module> group) {
    if (fp8_) return fp8_->forward(input, output, std::nullopt, group);
    split_columns_forward(writer_, weights_, input, output);
}

void LayerLinear::columns_forward_again(CallOperand input, Slot output) {
    if (fp8_) return fp8_->forward_again(input, output);
    split_columns_forward(writer_, weights_, input, output);
}

Slot LayerLinear::columns_backward(CallOperand gradient, const std::function<CallOperand()>& input) {
    if (!fp8_) return split_columns_backward(writer_, weights_, gradient, input);
    const Slot result = fp8_->input_gradient(gradient);
    fp8_->weight_gradient(gradient, input);
    return result;
}

void LayerLinear::depth_forward(CallOperand input, Slot output, CallOperand residual) {
    if (fp8_) return fp8_->forward(input, output, residual, std::nullopt);
    split_depth_forward(writer_, weights_, input, output, residual);
}

Slot LayerLinear::input_gradient(CallOperand gradient) {
    return fp8_ ? fp8_->input_gradient(gradient) : writer_.input_gradient(weights_, gradient);
}

void LayerLinear::weight_gradient(CallOperand gradient, CallOperand input) {
    if (fp8_) return fp8_->weight_gradient(gradient, [input] { return input; });
    writer_.weight_gradient(weights_, gradient, input);
}

}  // namespace stowage::layers
