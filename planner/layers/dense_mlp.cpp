#include "planner/layers/dense_mlp.hpp"

namespace stowage::layers {
namespace {

LinearSite fc1_site(const Writer& writer) {
    return {.name = "mlp_fc1",
            .norm_name = "mlp_norm",
            .part = Part::mlp_fc1,
            .norm_part = Part::mlp_norm,
            .width = writer.dim.fc1_width,
            .bias = writer.model.add_bias_linear,
            .group = std::nullopt};
}

LinearSite fc2_site(const Writer& writer) {
    return {.name = "mlp_fc2",
            .norm_name = {},
            .part = Part::mlp_fc2,
            .norm_part = Part::mlp_fc2,
            .width = writer.dim.ffn,
            .bias = writer.model.add_bias_linear,
            .group = std::nullopt};
}

DenseMlp forward_once(Writer& writer, Slot input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    DenseMlp mlp;
    mlp.fc1 = norm_linear_forward(writer, fc1_site(writer), input);
    script.part(Part::mlp_act);
    const Slot activated = writer.make("mlp_act.output", dim.full_shape(dim.ffn));
    writer.memory_kernel("mlp_act.forward", 2 * dim.tokens * (dim.fc1_width + dim.ffn));
    mlp.activation_input = script.save(mlp.fc1.output);
    script.drop(mlp.fc1.output);
    mlp.fc2 = row_linear_forward(writer, fc2_site(writer), activated);
    script.drop(activated);
    return mlp;
}

void backward_once(Writer& writer, const DenseMlp& mlp, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot activated_gradient = row_linear_backward(writer, fc2_site(writer), mlp.fc2);
    script.part(Part::mlp_act);
    const Slot gradient = writer.make("mlp_act.input_gradient", dim.full_shape(dim.fc1_width));
    script.read(mlp.activation_input);
    writer.memory_kernel("mlp_act.backward", 2 * dim.tokens * (2 * dim.fc1_width + dim.ffn));
    script.forget(mlp.activation_input);
    script.drop(activated_gradient);
    norm_linear_backward(writer, fc1_site(writer), mlp.fc1, gradient, grad_input);
}

}  // namespace

DenseMlp dense_mlp_forward(Writer& writer, Slot input) {
    if (!writer.recomputes(types::RecomputeModule::mlp)) return forward_once(writer, input);
    writer.script.part(Part::mlp_norm);
    const SavedIndex checkpoint = writer.script.save(input);
    const SavingScope scope(writer.script, Saving::nothing);
    DenseMlp mlp = forward_once(writer, input);
    mlp.checkpoint = checkpoint;
    mlp.input = input;
    return mlp;
}

void dense_mlp_backward(Writer& writer, const DenseMlp& mlp, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    if (!mlp.checkpoint) return backward_once(writer, mlp, grad_input);
    script.part(Part::mlp_norm);
    script.read(*mlp.checkpoint);
    {
        const SavingScope rebuild(script, Saving::rebuild);
        script.phase(Phase::recompute);
        const DenseMlp second = forward_once(writer, mlp.input);
        script.phase(Phase::backward);
        backward_once(writer, second, grad_input);
        script.drop(second.fc2.output);
    }
    script.forget(*mlp.checkpoint);
}

void dense_mlp_parameters(Writer& writer) {
    norm_linear_parameters(writer, fc1_site(writer));
    row_linear_parameters(writer, fc2_site(writer));
}

}  // namespace stowage::layers
