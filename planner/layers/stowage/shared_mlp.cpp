#include "planner/layers/stowage/shared_mlp.hpp"

namespace stowage::layers {

SharedMlp::SharedMlp(StowageWriter& writer)
    : writer_(writer),
      again_(writer.recomputes(types::RecomputeModule::shared_experts) ||
             writer.recomputes(types::RecomputeModule::moe)),
      fc1_(writer.linear("shared_expert.fc1", writer.dim.shared_fc1_width, writer.dim.hidden, false)),
      fc2_(writer.linear("shared_expert.fc2", writer.dim.hidden, writer.dim.shared_ffn, false)),
      expanded_(writer.script.tensor("shared_expert.fc1.output", writer.dim.full_shape(writer.dim.shared_fc1_width))),
      activated_(writer.script.tensor("shared_expert.act.output", writer.dim.full_shape(writer.dim.shared_ffn))) {}

CallSizes SharedMlp::activation_sizes() const {
    CallSizes sizes = writer_.rows_and_columns(writer_.dim.shared_ffn);
    sizes.gated = true;
    return sizes;
}

Slot SharedMlp::forward(CallOperand normed, CallOperand residual) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::shared_expert);
    writer_.run_linear(fc1_, normed, expanded_);
    script.allocate(activated_);
    writer_.memory_kernel("shared_expert.act.forward", 2 * dim.tokens * 3 * dim.shared_ffn,
                          {Call::activation_forward, activation_sizes(), {reads(expanded_), writes(activated_)}});
    if (!again_) saved_expanded_ = script.save(expanded_);
    script.drop(expanded_);
    const Slot output = script.tensor("shared_expert.output", dim.full_shape(dim.hidden));
    writer_.run_linear(fc2_, reads(activated_), output, residual);
    script.drop(activated_);
    return output;
}

/// Returns the gradient of fc1's output; fc2's weight gets its gradient.
Slot SharedMlp::activation_backward(CallOperand gradient) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    const Slot activated_gradient = writer_.input_gradient(fc2_, gradient);
    const Slot expanded_gradient =
        writer_.make("shared_expert.fc1.output_gradient", dim.full_shape(dim.shared_fc1_width));
    script.allocate(activated_);
    if (saved_expanded_) script.read(*saved_expanded_);
    const CallOperand expanded = saved_expanded_ ? script.operand(*saved_expanded_) : reads(expanded_);
    writer_.memory_kernel("shared_expert.act.backward", 2 * dim.tokens * 6 * dim.shared_ffn,
                          {Call::activation_backward,
                           activation_sizes(),
                           {expanded, reads(activated_gradient), writes(expanded_gradient), writes(activated_)}});
    if (saved_expanded_)
        script.forget(*saved_expanded_);
    else
        script.drop(expanded_);
    script.drop(activated_gradient);
    writer_.weight_gradient(fc2_, gradient, reads(activated_));
    script.drop(activated_);
    return expanded_gradient;
}

Slot SharedMlp::backward(CallOperand gradient, CallOperand normed) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::shared_expert);
    if (again_) {
        script.phase(Phase::recompute);
        writer_.run_linear(fc1_, normed, expanded_);
        script.phase(Phase::backward);
    }
    const Slot expanded_gradient = activation_backward(gradient);
    const Slot result = writer_.input_gradient(fc1_, reads(expanded_gradient));
    writer_.weight_gradient(fc1_, reads(expanded_gradient), normed);
    script.drop(expanded_gradient);
    return result;
}

}  // namespace stowage::layers
