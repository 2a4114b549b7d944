#include "planner/layers/stowage/grouped_experts.hpp"

namespace stowage::layers {

GroupedExperts::GroupedExperts(StowageWriter& writer)
    : writer_(writer),
      fc1_(linear("expert_fc1", writer.dim.expert_fc1_width, writer.dim.routed_width)),
      fc2_(linear("expert_fc2", writer.dim.routed_width, writer.dim.expert_ffn)) {}

GroupedExperts::Linear GroupedExperts::linear(const std::string& name, std::int64_t columns, std::int64_t depth) const {
    return {name, columns, depth,
            writer_.expert_parameter(name + ".weight", {writer_.dim.local_experts, columns, depth})};
}

// ------------------------------------------------------------------------------------------------------------ linears

CallSizes GroupedExperts::gemm_sizes(const Linear& linear) const {
    CallSizes sizes = row_sizes(writer_, writer_.dim.expert_tokens, linear.columns);
    sizes.depth = linear.depth;
    sizes.experts = writer_.dim.local_experts;
    sizes.workspace_bytes = kGemmWorkspaceBytes;
    return sizes;
}

void GroupedExperts::gemm(const Linear& linear, std::string_view end, std::int64_t result_bytes,
                          std::int64_t operand_bytes, KernelCall call) {
    Kernel kernel;
    kernel.name = linear.name + std::string(end);
    kernel.kind = KernelClass::gemm;
    kernel.flops = 2.0 * static_cast<double>(writer_.dim.expert_tokens) * static_cast<double>(linear.columns) *
                   static_cast<double>(linear.depth);
    kernel.traffic = Bytes{operand_bytes + result_bytes};
    kernel.result = Bytes{result_bytes};
    kernel.count = writer_.dim.local_experts;
    kernel.call = std::move(call);
    writer_.script.kernel(std::move(kernel));
}

void GroupedExperts::run(const Linear& linear, CallOperand input, Slot output) {
    const Dimensions& dim = writer_.dim;
    gemm(linear, ".forward", 2 * dim.expert_tokens * linear.columns,
         2 * (dim.expert_tokens + dim.local_experts * linear.columns) * linear.depth,
         {Call::grouped_linear_forward,
          gemm_sizes(linear),
          {input, reads(linear.weight), writes(output), writes(StowageState::workspace)}});
}

Slot GroupedExperts::input_gradient(const Linear& linear, Slot gradient) {
    const Dimensions& dim = writer_.dim;
    const Slot result = writer_.make(linear.name + ".input_gradient", {dim.expert_tokens, linear.depth});
    gemm(linear, ".dgrad", 2 * dim.expert_tokens * linear.depth,
         2 * (dim.expert_tokens + dim.local_experts * linear.depth) * linear.columns,
         {Call::grouped_linear_input_gradient,
          gemm_sizes(linear),
          {reads(gradient), reads(linear.weight), writes(result), writes(StowageState::workspace)}});
    return result;
}

void GroupedExperts::weight_gradient(const Linear& linear, Slot gradient, CallOperand input) {
    const Dimensions& dim = writer_.dim;
    writer_.script.phase(Phase::weight_gradient);
    gemm(linear, ".wgrad", 2 * writer_.gradient_bytes() * dim.local_experts * linear.columns * linear.depth,
         2 * dim.expert_tokens * (linear.columns + linear.depth),
         {Call::grouped_linear_weight_gradient,
          gemm_sizes(linear),
          {reads(gradient), input, adds_to(linear.weight), writes(StowageState::workspace)}});
    writer_.script.phase(Phase::backward);
}

// ------------------------------------------------------------------------------------------------------------ forward

Slot GroupedExperts::activate(Slot expanded, Slot weights) {
    const Dimensions& dim = writer_.dim;
    const Slot activated = writer_.make("moe_act.output", {dim.expert_tokens, dim.expert_ffn});
    writer_.memory_kernel("moe_act.forward", dim.expert_tokens * (2 * 3 * dim.expert_ffn + 4),
                          {Call::weighted_activation_forward,
                           row_sizes(writer_, dim.expert_tokens, dim.expert_ffn),
                           {reads(expanded), reads(weights), writes(activated)}});
    return activated;
}

/// Returns fc1's output. Saves and drops `rows`.
Slot GroupedExperts::expand(Slot rows) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::expert_fc1);
    script.start(Module::expert_fc1);
    const Slot expanded = writer_.make("expert_fc1.output", {dim.expert_tokens, dim.expert_fc1_width});
    run(fc1_, reads(rows), expanded);
    rows_ = script.save(rows, Module::expert_fc1);
    script.commit(Module::expert_fc1);
    script.drop(rows);
    return expanded;
}

/// Drops both.
void GroupedExperts::save_activation(Slot expanded, Slot weights) {
    ScriptBuilder& script = writer_.script;
    expanded_ = script.save(expanded, Module::moe_act);
    weights_ = script.save(weights, Module::moe_act);
    script.commit(Module::moe_act);
    script.drop(expanded);
    script.drop(weights);
}

Slot GroupedExperts::forward(const ExpertRows& rows) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    const Slot expanded = expand(rows.rows);
    script.part(Part::moe_act);
    script.start(Module::moe_act);
    const Slot activated = activate(expanded, rows.weights.value());
    save_activation(expanded, rows.weights.value());
    script.part(Part::expert_fc2);
    const Slot output = writer_.make("expert_fc2.output", {dim.expert_tokens, dim.routed_width});
    run(fc2_, reads(activated), output);
    script.drop(activated);
    return output;
}

void GroupedExperts::forward_again(const ExpertRows& rows) {
    const Slot expanded = expand(rows.rows);
    save_activation(expanded, rows.weights.value());
}

// ----------------------------------------------------------------------------------------------------------- backward

GroupedExperts::Activation GroupedExperts::activation_backward(Slot activated_gradient) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    Activation made;
    script.part(Part::moe_act);
    script.commit(Module::moe_act);
    made.gradient = writer_.make("expert_fc1.output_gradient", {dim.expert_tokens, dim.expert_fc1_width});
    made.activated = writer_.make("moe_act.output_again", {dim.expert_tokens, dim.expert_ffn});
    made.weights = writer_.make("moe_act.weights_gradient", {dim.expert_tokens}, DataType::fp32);
    script.read(expanded_);
    script.read(weights_);
    writer_.memory_kernel("moe_act.backward", dim.expert_tokens * (2 * 6 * dim.expert_ffn + 2 * 4),
                          {Call::weighted_activation_backward,
                           row_sizes(writer_, dim.expert_tokens, dim.expert_ffn),
                           {script.operand(expanded_), script.operand(weights_), reads(activated_gradient),
                            writes(made.gradient), writes(made.activated), writes(made.weights)}});
    script.forget(expanded_);
    script.forget(weights_);
    script.drop(activated_gradient);
    script.start(Module::moe_act);
    return made;
}

ExpertRows GroupedExperts::backward(Slot gradient) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::expert_fc2);
    const Activation made = activation_backward(input_gradient(fc2_, gradient));
    script.part(Part::expert_fc2);
    weight_gradient(fc2_, gradient, reads(made.activated));
    script.drop(made.activated);
    script.drop(gradient);
    script.part(Part::expert_fc1);
    ExpertRows result;
    result.rows = input_gradient(fc1_, made.gradient);
    result.weights = made.weights;
    script.commit(Module::expert_fc1);
    script.read(rows_);
    weight_gradient(fc1_, made.gradient, script.operand(rows_));
    script.forget(rows_);
    script.drop(made.gradient);
    script.start(Module::expert_fc1);
    return result;
}

}  // namespace stowage::layers
