#include "planner/layers/gated_delta_net.hpp"

#include <string>
#include <utility>

#include "planner/layers/hybrid_exchange.hpp"

namespace stowage::layers {
namespace {

LinearSite in_site(const DeltaDimensions& d) {
    LinearSite site;
    site.name = "in_proj";
    site.norm_name = "mixer_norm";
    site.part = Part::mixer_in_proj;
    site.norm_part = Part::mixer_in_proj;
    site.width = d.in_width;
    return site;
}

LinearSite out_site(const DeltaDimensions& d) {
    LinearSite site;
    site.name = "out_proj";
    site.part = Part::mixer_out_proj;
    site.width = d.value_width;
    site.split = Split::rows;
    return site;
}

bool exchanges(const Writer& writer) { return writer.dim.context > 1; }
bool transposes(const Writer& writer) { return writer.dim.micro_batch > 1; }
bool recomputes_output(const Writer& writer) { return writer.recomputes(types::RecomputeModule::gdn_norm_out); }

Shape by_batch(const Writer& writer, const DeltaDimensions& d, std::int64_t width) {
    return {writer.dim.micro_batch, d.scan_sequence, width};
}

Shape by_sequence(const Writer& writer, const DeltaDimensions& d, std::int64_t width) {
    return {d.scan_sequence, writer.dim.micro_batch, width};
}

Slot transposed(Writer& writer, const std::string& name, const Shape& shape) {
    const Slot slot = writer.make(name, shape);
    writer.memory_kernel(name, 4 * shape[0] * shape[1] * shape[2]);
    return slot;
}

std::int64_t unit_width(const DeltaDimensions& d) { return 2 * d.scan_key_heads * d.key_size; }

/// Bytes of one 16-bit value tensor.
std::int64_t value_bytes(const DeltaDimensions& d) { return 2 * d.scan_tokens * d.scan_value_width; }

/// Bytes of query or key after its heads were repeated.
std::int64_t repeated_bytes(const DeltaDimensions& d) { return 2 * d.scan_tokens * d.scan_value_heads * d.key_size; }

// ------------------------------------------------------------------------------------------------------------- inputs

/// The convolution; returns its output.
Slot convolve(Writer& writer, const DeltaDimensions& d, Slot packed, GatedDeltaNet& net) {
    writer.script.part(Part::mixer_conv);
    const Slot output = writer.make("conv1d.output", by_batch(writer, d, d.scan_convolved));
    writer.memory_kernel("conv1d.forward", 2 * 2 * d.scan_tokens * d.scan_convolved);
    net.inputs.push_back(writer.script.save_view("conv1d.input", packed, std::nullopt,
                                                 by_batch(writer, d, d.scan_convolved), CopyForm::gathered));
    return output;
}

/// What the rule takes, out of the convolution's output and the packed tensor; fills `net.gate`.
DeltaOperands make_operands(Writer& writer, const DeltaDimensions& d, Slot packed, GatedDeltaNet& net) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_scan);
    const Shape keys{writer.dim.micro_batch, d.scan_sequence, d.scan_value_heads, d.key_size};
    const Slot source = writer.make("unit.input", by_batch(writer, d, unit_width(d)));
    writer.memory_kernel("unit.copy", 4 * d.scan_tokens * unit_width(d));
    const Slot unit = writer.make("unit.output", by_batch(writer, d, unit_width(d)));
    const Slot rstd = writer.make("unit.rstd", {2 * d.scan_tokens * d.scan_key_heads}, DataType::fp32);
    writer.memory_kernel("unit.forward", 4 * d.scan_tokens * unit_width(d));
    net.unit = {script.save(unit), script.save(rstd)};
    for (Slot slot : {rstd, source}) script.drop(slot);

    DeltaOperands operands;
    operands.query = writer.make("query", keys);
    operands.key = writer.make("key", keys);
    operands.value = writer.make("value", by_batch(writer, d, d.scan_value_width));
    net.gate = writer.make("gate", by_batch(writer, d, d.scan_value_width));
    operands.decay = writer.make("decay", by_batch(writer, d, d.scan_value_heads), DataType::fp32);
    operands.strength = writer.make("strength", by_batch(writer, d, d.scan_value_heads));
    writer.memory_kernel("operands.forward",
                         2 * d.scan_tokens * unit_width(d) + 2 * repeated_bytes(d) + 4 * value_bytes(d));
    net.inputs.push_back(script.save_view("decay.input", packed, std::nullopt, by_batch(writer, d, d.scan_value_heads),
                                          CopyForm::gathered));
    script.drop(unit);
    return operands;
}

/// Gradient of the packed tensor [s, b, in]; drops what it is given.
Slot inputs_backward(Writer& writer, const DeltaDimensions& d, const GatedDeltaNet& net, const DeltaOperands& gradients,
                     Slot gate_gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_scan);
    for (SavedIndex saved : net.unit) script.read(saved);
    for (SavedIndex saved : net.inputs) script.read(saved);
    const Slot unit_gradient = writer.make("unit.output_gradient", by_batch(writer, d, unit_width(d)));
    writer.memory_kernel("operands.backward", 2 * repeated_bytes(d) + 2 * d.scan_tokens * unit_width(d));
    const Slot source_gradient = writer.make("unit.input_gradient", by_batch(writer, d, unit_width(d)));
    writer.memory_kernel("unit.backward", 6 * d.scan_tokens * unit_width(d));
    const Slot numbers = writer.make("numbers.gradient", by_batch(writer, d, 2 * d.scan_value_heads));
    for (const char* name : {"A_log", "dt_bias"}) writer.accumulate_small_gradient(name, {d.value_heads});
    const Slot convolved_gradient = writer.make("conv1d.output_gradient", by_batch(writer, d, d.scan_convolved));
    writer.memory_kernel("conv1d.join_gradients", 4 * d.scan_tokens * d.scan_convolved);
    for (Slot slot : {source_gradient, unit_gradient}) script.drop(slot);
    for (Slot slot : gradients.list()) script.drop(slot);

    script.part(Part::mixer_conv);
    const Slot linear = writer.make("conv1d.linear_output", by_batch(writer, d, d.scan_convolved));
    writer.memory_kernel("conv1d.recompute", 2 * 2 * d.scan_tokens * d.scan_convolved);
    const Slot input_gradient = writer.make("conv1d.input_gradient", by_batch(writer, d, d.scan_convolved));
    writer.memory_kernel("conv1d.backward", 4 * 2 * d.scan_tokens * d.scan_convolved);
    writer.accumulate_small_gradient("conv1d.weight", {d.convolved, 1, d.taps});
    for (Slot slot : {linear, convolved_gradient}) script.drop(slot);
    Slot packed = writer.make("mixer.packed_gradient", by_batch(writer, d, d.scan_in_width));
    writer.memory_kernel("mixer.pack_gradients", 4 * d.scan_tokens * d.scan_in_width);
    for (Slot slot : {input_gradient, numbers, gate_gradient}) script.drop(slot);
    for (SavedIndex saved : net.unit) script.forget(saved);
    for (SavedIndex saved : net.inputs) script.forget(saved);
    if (exchanges(writer))
        script.drop(std::exchange(
            packed, heads_to_tokens(writer, "mixer.to_heads.backward", d.in_width, writer.dim.full_shape(d.in_width))));
    else if (transposes(writer))
        script.drop(
            std::exchange(packed, transposed(writer, "in_proj.output_gradient", writer.dim.full_shape(d.in_width))));
    return packed;
}

// ------------------------------------------------------------------------------------------------------------- output

GatedOutput gate_forward(Writer& writer, const DeltaDimensions& d, Slot core, Slot gate) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_norm);
    const std::int64_t rows = d.scan_tokens * d.scan_value_heads;
    GatedOutput result;
    const Slot normed = writer.make("out_norm.output", by_batch(writer, d, d.scan_value_width));
    const NormStatistics statistics = run_norm(writer, "out_norm", rows, d.value_size);
    result.norm = save_norm(writer, "out_norm", rows, d.value_size, core, statistics, std::nullopt);
    result.output = writer.make("gated.output", by_batch(writer, d, d.scan_value_width));
    writer.memory_kernel("gated.forward", 3 * value_bytes(d));
    result.normed = script.save(normed);
    result.gate = script.save(gate);
    script.drop(normed);
    if (transposes(writer))
        script.drop(std::exchange(
            result.output, transposed(writer, "gated.output_by_sequence", by_sequence(writer, d, d.scan_value_width))));
    if (exchanges(writer))
        script.drop(std::exchange(result.output, heads_to_tokens(writer, "mixer.to_tokens", d.value_width,
                                                                 writer.dim.full_shape(d.value_width))));
    return result;
}

/// Drops `gradient`; returns the gradients of the rule's output and of the gate.
std::pair<Slot, Slot> gate_backward(Writer& writer, const DeltaDimensions& d, const GatedOutput& gated, Slot gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_norm);
    if (exchanges(writer))
        script.drop(std::exchange(gradient, tokens_to_heads(writer, "mixer.to_tokens.backward", {d.value_width},
                                                            by_sequence(writer, d, d.scan_value_width))));
    const Shape shape = by_batch(writer, d, d.scan_value_width);
    for (SavedIndex saved : {gated.normed, gated.gate}) script.read(saved);
    const Slot normed_gradient = writer.make("out_norm.output_gradient", shape);
    const Slot gate_gradient = writer.make("gate.gradient", shape);
    writer.memory_kernel("gated.backward", 5 * value_bytes(d));
    for (SavedIndex saved : {gated.normed, gated.gate}) script.forget(saved);
    script.drop(gradient);
    const Slot core_gradient = writer.make("delta_rule.output_gradient", shape);
    norm_backward(writer, gated.norm);
    script.drop(normed_gradient);
    return {core_gradient, gate_gradient};
}

void output_forward(Writer& writer, const DeltaDimensions& d, GatedDeltaNet& net) {
    ScriptBuilder& script = writer.script;
    net.core = net.rule.output;
    {
        std::optional<SavingScope> checkpoint;
        if (recomputes_output(writer)) {
            script.part(Part::mixer_norm);
            net.checkpoint = {script.save(net.core), script.save(net.gate)};
            checkpoint.emplace(script, Saving::nothing);
        }
        net.gated = gate_forward(writer, d, net.core, net.gate);
    }
    if (recomputes_output(writer)) script.discards(net.gated.output);
    net.out_proj = row_linear_forward(writer, out_site(d), net.gated.output);
    script.drop(net.gated.output);
}

/// Gradients of the rule's output and of the gate.
std::pair<Slot, Slot> output_backward(Writer& writer, const DeltaDimensions& d, const GatedDeltaNet& net) {
    ScriptBuilder& script = writer.script;
    if (!recomputes_output(writer))
        return gate_backward(writer, d, net.gated, row_linear_backward(writer, out_site(d), net.out_proj));
    script.part(Part::mixer_norm);
    for (SavedIndex saved : net.checkpoint) script.read(saved);
    const SavingScope rebuild(script, Saving::rebuild);
    script.phase(Phase::recompute);
    const GatedOutput second = gate_forward(writer, d, net.core, net.gate);
    const Slot restored = writer.make("gated.restored", writer.dim.full_shape(d.value_width));
    writer.memory_kernel("gated.restore", 4 * writer.dim.tokens * d.value_width);
    script.phase(Phase::backward);
    const Slot gradient = row_linear_backward(writer, out_site(d), net.out_proj);
    script.drop(restored);
    const auto gradients = gate_backward(writer, d, second, gradient);
    script.drop(second.output);
    for (SavedIndex saved : net.checkpoint) script.forget(saved);
    return gradients;
}

}  // namespace

GatedDeltaNet gated_delta_net_forward(Writer& writer, Slot input) {
    ScriptBuilder& script = writer.script;
    const DeltaDimensions d = delta_dimensions(writer.dim, writer.model);
    GatedDeltaNet net;
    net.in_proj = norm_linear_forward(writer, in_site(d), input);
    Slot packed = net.in_proj.output;
    if (exchanges(writer))
        script.drop(std::exchange(
            packed, tokens_to_heads(writer, "mixer.to_heads", {d.in_width}, by_sequence(writer, d, d.scan_in_width))));
    const Slot convolved = convolve(writer, d, packed, net);
    const DeltaOperands operands = make_operands(writer, d, packed, net);
    net.rule = delta_rule_forward(writer, d, operands);
    output_forward(writer, d, net);
    // Megatron's variables of the whole forward go when it returns.
    for (Slot slot : operands.list()) script.drop(slot);
    for (Slot slot : {net.core, net.gate, convolved, packed}) script.drop(slot);
    return net;
}

void gated_delta_net_backward(Writer& writer, const GatedDeltaNet& net, Slot grad_input) {
    const DeltaDimensions d = delta_dimensions(writer.dim, writer.model);
    const auto [core_gradient, gate_gradient] = output_backward(writer, d, net);
    const DeltaOperands gradients = delta_rule_backward(writer, d, net.rule, core_gradient);
    const Slot packed_gradient = inputs_backward(writer, d, net, gradients, gate_gradient);
    norm_linear_backward(writer, in_site(d), net.in_proj, packed_gradient, grad_input);
}

void gated_delta_net_parameters(Writer& writer) {
    const DeltaDimensions d = delta_dimensions(writer.dim, writer.model);
    norm_linear_parameters(writer, in_site(d));
    writer.sharded_parameter("conv1d.weight", {d.convolved, 1, d.taps});
    for (const char* name : {"dt_bias", "A_log"}) writer.sharded_parameter(name, {d.value_heads});
    writer.norm_parameters("out_norm", d.value_size);
    row_linear_parameters(writer, out_site(d));
}

}  // namespace stowage::layers
