#include "planner/layers/moe_experts.hpp"

#include <string>

namespace stowage::layers {
namespace {

using types::Activation;
using types::Precision;
using types::RecomputeModule;

/// Whether the routing weight is multiplied inside the activation's kernel.
bool fused_weight(const Writer& writer) { return writer.model.activation != Activation::gelu; }

/// A plan that leaves the modules open may choose any of them.
bool may_offload(const Writer& writer, Module module) {
    const auto& modules = writer.scenario.offload.offload_modules;
    return !modules || modules->contains(module);
}

/// The input as the GEMM takes it and as it is saved, in pieces where every expert has its own.
std::vector<Operand> fc1_operands(Writer& writer, Slot tokens) {
    const std::int64_t width = writer.dim.routed_width;
    if (writer.scenario.precision != Precision::mxfp8) {
        const OperandUse use{.gathered = false, .save_original = may_offload(writer, Module::expert_fc1)};
        return {make_operand(writer, "expert_fc1", tokens, expert_rows(writer), width, use)};
    }
    std::vector<Operand> pieces;
    const std::int64_t rows = expert_rows(writer) / writer.dim.local_experts;
    for (std::int64_t expert = 0; expert < writer.dim.local_experts; ++expert)
        pieces.push_back(make_operand(writer, "expert_fc1." + std::to_string(expert), tokens, rows, width));
    return pieces;
}

Slot fc1_forward(Writer& writer, Slot tokens, Experts& experts) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t rows = expert_rows(writer);
    script.part(Part::expert_fc1);
    script.start(Module::expert_fc1);
    const std::vector<Operand> operands = fc1_operands(writer, tokens);
    const Slot output = writer.make("expert_fc1.output", {rows, dim.expert_fc1_width});
    writer.grouped_gemm("expert_fc1.forward", rows, dim.expert_fc1_width, dim.routed_width, dim.local_experts);
    const auto pieces = static_cast<std::int64_t>(operands.size());
    for (const Operand& operand : operands)
        experts.fc1_input.push_back(
            save_operand(writer, "expert_fc1", operand, rows / pieces, dim.routed_width, Module::expert_fc1));
    script.commit(Module::expert_fc1, {tokens});
    return output;
}

ExpertActivation activation_forward(Writer& writer, Slot fc1_output, Slot weights) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Shape shape{expert_rows(writer), dim.expert_ffn};
    script.part(Part::moe_act);
    ExpertActivation activation;
    activation.output = writer.make("moe_act.output", shape);
    writer.memory_kernel("moe_act.forward", 2 * expert_rows(writer) * (dim.expert_fc1_width + dim.expert_ffn));
    activation.input = script.save(fc1_output, Module::moe_act);
    if (!fused_weight(writer)) {
        const Slot unweighted = activation.output;
        const Slot product = writer.make("moe_act.product", shape, DataType::fp32);
        writer.memory_kernel("moe_act.weight", 6 * expert_rows(writer) * dim.expert_ffn);
        activation.unweighted = script.save(unweighted);
        script.drop(unweighted);
        activation.output = writer.make("moe_act.weighted", shape);
        writer.memory_kernel("moe_act.round", 6 * expert_rows(writer) * dim.expert_ffn);
        script.drop(product);
    }
    activation.weights = script.save(weights, Module::moe_act);
    return activation;
}

/// Under recomputation the group's tensors are saved as they are and what the activation makes is not.
Slot activate(Writer& writer, Experts& experts) {
    ScriptBuilder& script = writer.script;
    if (!writer.recomputes(RecomputeModule::moe_act)) {
        experts.activation = activation_forward(writer, experts.fc1_output, experts.weights);
        return experts.activation.output;
    }
    script.part(Part::moe_act);
    experts.activation.input = script.save(experts.fc1_output, Module::moe_act);
    experts.activation.weights = script.save(experts.weights, Module::moe_act);
    const SavingScope checkpoint(script, Saving::nothing);
    const Slot output = activation_forward(writer, experts.fc1_output, experts.weights).output;
    script.discards(output);
    return output;
}

Slot fc2_forward(Writer& writer, Slot activated, Experts& experts) {
    const Dimensions& dim = writer.dim;
    const std::int64_t rows = expert_rows(writer);
    writer.script.part(Part::expert_fc2);
    const OperandUse use{.gathered = false, .save_original = writer.recomputes(RecomputeModule::moe_act)};
    const Operand operand = make_operand(writer, "expert_fc2", activated, rows, dim.expert_ffn, use);
    const Slot output = writer.make("expert_fc2.output", {rows, dim.routed_width});
    writer.grouped_gemm("expert_fc2.forward", rows, dim.routed_width, dim.expert_ffn, dim.local_experts);
    experts.fc2_input = save_operand(writer, "expert_fc2", operand, rows, dim.expert_ffn, std::nullopt);
    return output;
}

Slot fc2_backward(Writer& writer, const Experts& experts, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t rows = expert_rows(writer);
    script.part(Part::expert_fc2);
    const std::vector<Slot> converted = convert_gradient(writer, "expert_fc2", rows, dim.routed_width);
    const Slot result = writer.make("expert_fc2.dgrad", {rows, dim.expert_ffn});
    writer.grouped_gemm("expert_fc2.dgrad", rows, dim.expert_ffn, dim.routed_width, dim.local_experts);
    read_operand(writer, experts.fc2_input);
    const std::vector<Slot> reconverted = convert_saved(writer, experts.fc2_input);
    writer.grouped_weight_gradient("expert_fc2.wgrad", rows, dim.routed_width, dim.expert_ffn, dim.local_experts);
    forget_operand(writer, experts.fc2_input);
    drop_all(writer, reconverted);
    drop_all(writer, converted);
    script.drop(gradient);
    return result;
}

/// The backward of the product: gradients of the activation's own output and of the weights, through fp32.
TokenRows weight_backward(Writer& writer, const ExpertActivation& activation, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Shape shape{expert_rows(writer), writer.dim.expert_ffn};
    const std::int64_t elements = shape[0] * shape[1];
    const Slot wide = writer.make("moe_act.wide_gradient", shape, DataType::fp32);
    writer.memory_kernel("moe_act.widen", (2 + 4) * elements);
    script.drop(gradient);
    script.read(activation.weights);
    script.read(*activation.unweighted);
    const Slot scaled = writer.make("moe_act.scaled_gradient", shape, DataType::fp32);
    writer.memory_kernel("moe_act.scale", (4 + 4) * elements);
    const Slot products = writer.make("moe_act.products", shape, DataType::fp32);
    writer.memory_kernel("moe_act.products", (4 + 2 + 4) * elements);
    TokenRows result;
    result.weights = writer.make("moe_act.weights_gradient", {shape[0]}, DataType::fp32);
    writer.memory_kernel("moe_act.sum", 4 * elements);
    script.drop(products);
    script.drop(wide);
    script.forget(*activation.unweighted);
    result.rows = writer.make("moe_act.unweighted_gradient", shape);
    writer.memory_kernel("moe_act.round_gradient", (4 + 2) * elements);
    script.drop(scaled);
    return result;
}

/// Gradients of fc1's output and of the routing weights.
TokenRows activation_backward(Writer& writer, const ExpertActivation& activation, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::moe_act);
    TokenRows result;
    if (activation.unweighted) {
        result = weight_backward(writer, activation, gradient);
        gradient = result.rows;
    } else {
        result.weights = writer.make("moe_act.weights_gradient", {expert_rows(writer)}, DataType::fp32);
        script.read(activation.weights);
    }
    result.weighted = true;
    result.rows = writer.make("moe_act.input_gradient", {expert_rows(writer), dim.expert_fc1_width});
    script.read(activation.input);
    writer.memory_kernel("moe_act.backward", 2 * expert_rows(writer) * (2 * dim.expert_fc1_width + dim.expert_ffn));
    script.forget(activation.input);
    script.forget(activation.weights);
    script.drop(gradient);
    return result;
}

/// fc2 and the activation; the latter's output is rebuilt first where it was dropped.
TokenRows second_half_backward(Writer& writer, const Experts& experts, Slot gradient) {
    ScriptBuilder& script = writer.script;
    if (!writer.recomputes(RecomputeModule::moe_act))
        return activation_backward(writer, experts.activation, fc2_backward(writer, experts, gradient));
    script.part(Part::moe_act);
    script.read(experts.activation.input);
    script.read(experts.activation.weights);
    TokenRows tokens;
    {
        const SavingScope rebuild(script, Saving::rebuild);
        script.phase(Phase::recompute);
        const ExpertActivation second = activation_forward(writer, experts.fc1_output, experts.weights);
        const Slot restored = writer.make("moe_act.restored", {expert_rows(writer), writer.dim.expert_ffn});
        writer.memory_kernel("moe_act.restore", 4 * expert_rows(writer) * writer.dim.expert_ffn);
        script.phase(Phase::backward);
        const Slot activated = fc2_backward(writer, experts, gradient);
        script.drop(restored);
        tokens = activation_backward(writer, second, activated);
        script.drop(second.output);
    }
    script.forget(experts.activation.input);
    script.forget(experts.activation.weights);
    return tokens;
}

Slot fc1_backward(Writer& writer, const Experts& experts, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t rows = expert_rows(writer);
    script.part(Part::expert_fc1);
    const std::vector<Slot> converted = convert_gradient(writer, "expert_fc1", rows, dim.expert_fc1_width);
    const Slot result = writer.make("expert_fc1.dgrad", {rows, dim.routed_width});
    writer.grouped_gemm("expert_fc1.dgrad", rows, dim.routed_width, dim.expert_fc1_width, dim.local_experts);
    std::vector<Slot> reconverted;
    for (const SavedOperand& input : experts.fc1_input) {
        read_operand(writer, input);
        for (Slot copy : convert_saved(writer, input)) reconverted.push_back(copy);
    }
    writer.grouped_weight_gradient("expert_fc1.wgrad", rows, dim.expert_fc1_width, dim.routed_width, dim.local_experts);
    for (const SavedOperand& input : experts.fc1_input) forget_operand(writer, input);
    drop_all(writer, reconverted);
    drop_all(writer, converted);
    if (writer.model.add_bias_linear)
        writer.accumulate_small_gradient("expert_fc1.bias", {dim.local_experts, dim.expert_fc1_width});
    script.drop(gradient);
    return result;
}

}  // namespace

Experts experts_forward(Writer& writer, TokenRows tokens) {
    ScriptBuilder& script = writer.script;
    Experts experts;
    script.part(Part::expert_fc1);
    const TokenRows rows = pad_tokens(writer, tokens);
    experts.weights = rows.weights;
    experts.fc1_output = fc1_forward(writer, rows.rows, experts);
    script.part(Part::moe_act);
    script.start(Module::moe_act);
    const Slot activated = activate(writer, experts);
    experts.output = fc2_forward(writer, activated, experts);
    script.part(Part::moe_act);
    script.commit(Module::moe_act, {experts.fc1_output});
    experts.bias = expert_bias_forward(writer, experts.output, experts.weights);
    experts.output = experts.bias.output;
    script.part(Part::expert_fc2);
    experts.output = unpad_output(writer, experts.output);
    for (Slot slot : {experts.fc1_output, activated, rows.rows, rows.weights}) script.drop(slot);
    if (pads_experts(writer))
        for (Slot slot : {tokens.rows, tokens.weights}) script.drop(slot);
    return experts;
}

TokenRows experts_backward(Writer& writer, const Experts& experts, Slot gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::expert_fc2);
    gradient = pad_gradient(writer, gradient);
    const ExpertBiasGradients behind = expert_bias_backward(writer, experts.bias, gradient);
    script.part(Part::moe_act);
    script.commit(Module::moe_act);
    TokenRows tokens = second_half_backward(writer, experts, behind.rows);
    script.part(Part::moe_act);
    if (behind.weights) {
        writer.memory_kernel("moe_act.join_weights_gradients", 3 * 4 * expert_rows(writer));
        script.drop(*behind.weights);
    }
    script.start(Module::moe_act);
    script.part(Part::expert_fc1);
    script.commit(Module::expert_fc1);
    tokens.rows = fc1_backward(writer, experts, tokens.rows);
    script.start(Module::expert_fc1);
    return unpad_gradients(writer, tokens);
}

void experts_parameters(Writer& writer) {
    const Dimensions& dim = writer.dim;
    const std::int64_t split = dim.expert * dim.expert_tensor;  // ranks that hold other experts or other shards
    const auto declare = [&](const std::string& name, std::int64_t expert, Shape shape, std::int64_t copies) {
        std::int64_t elements = copies;
        for (std::int64_t size : shape) elements *= size;
        writer.script.parameter({name + std::to_string(expert), std::move(shape), ParameterKind::expert, elements});
    };
    const bool bias = writer.model.add_bias_linear;
    for (std::int64_t expert = 0; expert < dim.local_experts; ++expert) {
        declare("expert_fc1.weight", expert, {dim.expert_fc1_width, dim.routed_width}, split);
        if (bias) declare("expert_fc1.bias", expert, {dim.expert_fc1_width}, split);
    }
    for (std::int64_t expert = 0; expert < dim.local_experts; ++expert) {
        declare("expert_fc2.weight", expert, {dim.routed_width, dim.expert_ffn}, split);
        if (bias) declare("expert_fc2.bias", expert, {dim.routed_width}, dim.expert);
    }
}

}  // namespace stowage::layers
