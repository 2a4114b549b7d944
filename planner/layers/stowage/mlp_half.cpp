#include "planner/layers/stowage/mlp_half.hpp"

#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {

using types::RecomputeModule;

MlpHalf::MlpHalf(StowageWriter& writer)
    : writer_(writer),
      fc1_again_(writer.recomputes(RecomputeModule::mlp)),
      norm_(writer.norm("mlp_norm")),
      norm_saves_(writer, norm_, fc1_again_ || writer.recomputes(RecomputeModule::layernorm)),
      fc1_(writer, writer.linear("mlp_fc1", writer.dim.fc1_width, writer.dim.hidden, writer.model.add_bias_linear),
           norm_saves_.again()),
      fc2_(writer, writer.linear("mlp_fc2", writer.dim.hidden, writer.dim.ffn, writer.model.add_bias_linear), true),
      expanded_(writer.script.tensor("mlp_fc1.output", writer.dim.full_shape(writer.dim.fc1_width))),
      activated_(writer.script.tensor("mlp_act.output", writer.dim.full_shape(writer.dim.ffn))) {}

CallSizes MlpHalf::activation_sizes() const {
    CallSizes sizes = writer_.rows_and_columns(writer_.dim.ffn);
    sizes.gated = writer_.model.gated();
    return sizes;
}

void MlpHalf::forward(Slot input) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::mlp_norm);
    script.start(Module::mlp_norm);
    norm_saves_.forward(input, Module::mlp_norm);
    script.commit(Module::mlp_norm);
    if (!fc1_.keeps_copy()) norm_saves_.save_output(std::nullopt);
    script.part(Part::mlp_fc1);
    fc1_.columns_forward(reads(norm_.output), expanded_, std::nullopt);
    script.drop(norm_.output);
    script.part(Part::mlp_act);
    script.allocate(activated_);
    writer_.memory_kernel("mlp_act.forward", 2 * dim.tokens * (dim.fc1_width + dim.ffn),
                          {Call::activation_forward, activation_sizes(), {reads(expanded_), writes(activated_)}});
    if (!fc1_again_) saved_expanded_ = script.save(expanded_);
    script.drop(expanded_);
    script.part(Part::mlp_fc2);
    fc2_.depth_forward(reads(activated_), kOutput, reads(input));
    script.drop(activated_);
}

void MlpHalf::norm_again() {
    writer_.script.part(Part::mlp_norm);
    writer_.script.commit(Module::mlp_norm);
    norm_saves_.remake();
}

void MlpHalf::run_fc1_again() {
    ScriptBuilder& script = writer_.script;
    norm_again();
    script.part(Part::mlp_fc1);
    script.phase(Phase::recompute);
    fc1_.columns_forward_again(norm_saves_.output(), expanded_);
    script.phase(Phase::backward);
}

Slot MlpHalf::activation_backward() {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::mlp_fc2);
    const WholeRows whole = whole_rows(writer_, "mlp_fc2.gradient", reads(kGradOutput));
    const Slot activated_gradient = fc2_.input_gradient(whole.rows);
    script.part(Part::mlp_act);
    const Slot gradient = writer_.make("mlp_fc1.output_gradient", dim.full_shape(dim.fc1_width));
    script.allocate(activated_);
    if (saved_expanded_) script.read(*saved_expanded_);
    const CallOperand expanded = saved_expanded_ ? script.operand(*saved_expanded_) : reads(expanded_);
    writer_.memory_kernel("mlp_act.backward", 2 * dim.tokens * 2 * (dim.fc1_width + dim.ffn),
                          {Call::activation_backward,
                           activation_sizes(),
                           {expanded, reads(activated_gradient), writes(gradient), writes(activated_)}});
    if (saved_expanded_)
        script.forget(*saved_expanded_);
    else
        script.drop(expanded_);
    script.drop(activated_gradient);
    script.part(Part::mlp_fc2);
    fc2_.weight_gradient(whole.rows, reads(activated_));
    drop_whole_rows(writer_, whole);
    script.drop(activated_);
    return gradient;
}

/// Drops `gradient`; returns the gradient of the norm's output.
Slot MlpHalf::fc1_backward(Slot gradient) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::mlp_fc1);
    const Slot normed_gradient = fc1_.columns_backward(reads(gradient), [this] {
        if (norm_saves_.again() && !fc1_again_) norm_again();
        writer_.script.part(Part::mlp_fc1);
        return norm_saves_.output();
    });
    if (!fc1_.keeps_copy()) norm_saves_.forget_output();
    script.drop(gradient);
    return normed_gradient;
}

void MlpHalf::backward(Slot grad_input) {
    ScriptBuilder& script = writer_.script;
    if (fc1_again_) run_fc1_again();
    const Slot gradient = activation_backward();
    const Slot normed_gradient = fc1_backward(gradient);
    script.part(Part::mlp_norm);
    if (!norm_saves_.again()) script.commit(Module::mlp_norm);
    norm_saves_.backward({normed_gradient, kGradOutput, grad_input});
    script.drop(normed_gradient);
    script.drop(kGradOutput);
    script.start(Module::mlp_norm);
}

}  // namespace stowage::layers
