#include "planner/layers/shared_expert.hpp"

namespace stowage::layers {
namespace {

LinearSite fc1_site(const Writer& writer) {
    LinearSite site;
    site.name = "shared_expert.fc1";
    site.part = Part::shared_expert;
    site.width = writer.dim.shared_fc1_width;
    // The router holds the normed tokens in 16 bits anyway; an FP8 copy beside them would only cost.
    site.save_original = writer.scenario.precision != types::Precision::fp8_delayed &&
                         !writer.recomputes(types::RecomputeModule::shared_experts);
    return site;
}

LinearSite fc2_site(const Writer& writer) {
    LinearSite site;
    site.name = "shared_expert.fc2";
    site.part = Part::shared_expert;
    site.width = writer.dim.shared_ffn;
    return site;
}

/// Overlapped under sequence parallelism the gathers are not the linear's.
bool gathers_outside(const Writer& writer) {
    return writer.scenario.parallel.moe_shared_expert_overlap && writer.dim.sequence_parallel;
}

/// The sizes of a linear that is given all tokens and talks to nobody.
Dimensions all_tokens(const Dimensions& dim) {
    Dimensions all = dim;
    all.local_tokens = dim.tokens;
    all.sequence_parallel = false;
    return all;
}

LinearSite silent_fc1_site(const Writer& writer) {
    LinearSite site = fc1_site(writer);
    site.split = Split::none;
    return site;
}

Linear fc1_forward(Writer& writer, Slot normed) {
    if (!gathers_outside(writer)) return linear_forward(writer, fc1_site(writer), normed);
    const Dimensions& dim = writer.dim;
    const Slot total = writer.make("shared_expert.gathered", dim.full_shape(dim.hidden));
    writer.tensor_collective("shared_expert.gather", CollectiveKind::all_gather, dim.tokens * dim.hidden);
    const Dimensions all = all_tokens(dim);
    Writer whole(writer.script, all, writer.scenario);
    const Linear linear = linear_forward(whole, silent_fc1_site(whole), total);
    writer.script.drop(total);
    return linear;
}

Slot fc1_backward(Writer& writer, const Linear& linear, Slot gradient) {
    if (!gathers_outside(writer)) return linear_backward(writer, fc1_site(writer), linear, gradient);
    const Dimensions& dim = writer.dim;
    const Dimensions all = all_tokens(dim);
    Writer whole(writer.script, all, writer.scenario);
    const Slot total = linear_backward(whole, silent_fc1_site(whole), linear, gradient);
    const Slot share = writer.make("shared_expert.input_gradient", dim.hidden_shape());
    writer.tensor_collective("shared_expert.scatter", CollectiveKind::reduce_scatter, dim.tokens * dim.hidden);
    writer.script.drop(total);
    return share;
}

/// output = ungated * sigmoid(normed w): one number a token.
void gate_forward(Writer& writer, SharedExpert& expert) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot logits = writer.make("shared_expert.gate.logits", {dim.local_tokens, 1});
    writer.memory_kernel("shared_expert.gate.logits", 2 * dim.hidden_elements());
    SharedExpertGate gate;
    gate.input = script.save(expert.normed);
    const Slot score = writer.make("shared_expert.gate.score", {dim.local_tokens, 1});
    writer.memory_kernel("shared_expert.gate.sigmoid", 4 * dim.local_tokens);
    script.drop(logits);
    const Slot output = writer.make("shared_expert.gated", dim.hidden_shape());
    writer.memory_kernel("shared_expert.gate.product", 2 * 2 * dim.hidden_elements());
    gate.score = script.save(score);
    gate.ungated = script.save(expert.output);
    script.drop(score);
    script.drop(expert.output);
    expert.output = output;
    expert.gate = gate;
}

/// Gradient of one number a token: products over the width, summed.
Slot score_gradient(Writer& writer, const SharedExpertGate& gate) {
    const Dimensions& dim = writer.dim;
    writer.script.read(gate.ungated);
    const Slot products = writer.make("shared_expert.gate.products", dim.hidden_shape());
    writer.memory_kernel("shared_expert.gate.products", 3 * 2 * dim.hidden_elements());
    const Slot score = writer.make("shared_expert.gate.score_gradient", {dim.local_tokens, 1});
    writer.memory_kernel("shared_expert.gate.sum", 2 * dim.hidden_elements());
    writer.script.drop(products);
    writer.script.forget(gate.ungated);
    return score;
}

/// Returns the gradient of fc2's output; the caller drops it.
Slot gate_backward(Writer& writer, const SharedExpertGate& gate, GradientSum& sum) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot ungated = writer.make("shared_expert.gate.ungated_gradient", dim.hidden_shape());
    script.read(gate.score);
    writer.memory_kernel("shared_expert.gate.product_backward", 2 * 2 * dim.hidden_elements());
    const Slot score = score_gradient(writer, gate);
    const Slot logits = writer.make("shared_expert.gate.logits_gradient", {dim.local_tokens, 1});
    writer.memory_kernel("shared_expert.gate.sigmoid_backward", 6 * dim.local_tokens);
    script.forget(gate.score);
    script.drop(score);
    const Slot normed = writer.make("shared_expert.gate.dgrad", dim.hidden_shape());
    writer.memory_kernel("shared_expert.gate.dgrad", 2 * dim.hidden_elements());
    script.read(gate.input);
    script.phase(Phase::weight_gradient);
    writer.memory_kernel("shared_expert.gate.wgrad", 2 * dim.hidden_elements());
    script.phase(Phase::backward);
    writer.accumulate_small_gradient("shared_expert.gate_weight", {1, dim.hidden});
    script.forget(gate.input);
    script.drop(logits);
    sum.add(writer, "shared_expert.gate", normed);
    return ungated;
}

}  // namespace

SharedExpert shared_expert_begin(Writer& writer, Slot normed) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::shared_expert);
    SharedExpert expert;
    expert.normed = normed;
    expert.fc1 = fc1_forward(writer, normed);
    expert.activated = writer.make("shared_expert.act.output", dim.full_shape(dim.shared_ffn));
    writer.memory_kernel("shared_expert.act.forward", 2 * dim.tokens * (dim.shared_fc1_width + dim.shared_ffn));
    expert.activation_input = script.save(expert.fc1.output);
    script.drop(expert.fc1.output);
    return expert;
}

void shared_expert_finish(Writer& writer, SharedExpert& expert) {
    expert.fc2 = row_linear_forward(writer, fc2_site(writer), expert.activated);
    writer.script.drop(expert.activated);
    expert.output = expert.fc2.output;
    if (writer.model.moe_shared_expert_gate) gate_forward(writer, expert);
}

Slot shared_expert_finish_backward(Writer& writer, const SharedExpert& expert, GradientSum& sum) {
    writer.script.part(Part::shared_expert);
    std::optional<Slot> ungated;
    if (expert.gate) ungated = gate_backward(writer, *expert.gate, sum);
    const Slot activated = row_linear_backward(writer, fc2_site(writer), expert.fc2);
    if (ungated) writer.script.drop(*ungated);
    return activated;
}

void shared_expert_begin_backward(Writer& writer, const SharedExpert& expert, Slot gradient, GradientSum& sum) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::shared_expert);
    const Slot fc1 = writer.make("shared_expert.act.input_gradient", dim.full_shape(dim.shared_fc1_width));
    script.read(expert.activation_input);
    writer.memory_kernel("shared_expert.act.backward", 2 * dim.tokens * (2 * dim.shared_fc1_width + dim.shared_ffn));
    script.forget(expert.activation_input);
    script.drop(gradient);
    sum.add(writer, "shared_expert", fc1_backward(writer, expert.fc1, fc1));
}

void shared_expert_parameters(Writer& writer) {
    if (writer.dim.shared_ffn == 0) return;
    linear_parameters(writer, fc1_site(writer));
    row_linear_parameters(writer, fc2_site(writer));
    if (writer.model.moe_shared_expert_gate)
        writer.replicated_parameter("shared_expert.gate_weight", {1, writer.dim.hidden});
}

}  // namespace stowage::layers
