#include "planner/layers/mamba.hpp"

#include <string>
#include <utility>

#include "planner/layers/hybrid_exchange.hpp"

namespace stowage::layers {
namespace {

LinearSite in_site(std::int64_t width) {
    LinearSite site;
    site.name = "in_proj";
    site.norm_name = "mixer_norm";
    site.part = Part::mixer_in_proj;
    site.norm_part = Part::mixer_in_proj;
    site.width = width;
    return site;
}

LinearSite out_site(std::int64_t width) {
    LinearSite site;
    site.name = "out_proj";
    site.part = Part::mixer_out_proj;
    site.width = width;
    site.split = Split::rows;
    return site;
}

bool exchanges(const Writer& writer) { return writer.dim.context > 1; }
bool transposes(const Writer& writer) { return writer.dim.micro_batch > 1; }

Slot transposed(Writer& writer, const std::string& name, const Shape& shape) {
    const std::int64_t elements = shape[0] * shape[1] * shape[2];
    const Slot slot = writer.make(name, shape);
    writer.memory_kernel(name, 4 * elements);
    return slot;
}

/// z, x, B, C and the steps, B and C as often as they are sent.
std::vector<std::int64_t> pieces(const MambaDimensions& d) {
    const std::int64_t grouped = d.groups * d.state * d.repeats;
    return {d.inner, d.inner, grouped, grouped, d.heads};
}

Shape by_sequence(const Writer& writer, const MambaDimensions& d, std::int64_t width) {
    return {d.scan_sequence, writer.dim.micro_batch, width};
}

Shape by_batch(const Writer& writer, const MambaDimensions& d, std::int64_t width) {
    return {writer.dim.micro_batch, d.scan_sequence, width};
}

/// Takes `packed` [s, b, in] and returns the gated output [s, b, inner] of this rank's tokens; drops nothing of the
/// caller's but leaves in `packed` what lives on until the mixer returns.
Slot mix(Writer& writer, const MambaDimensions& d, Mamba& mamba, Slot& packed) {
    ScriptBuilder& script = writer.script;
    if (exchanges(writer)) {
        script.part(Part::mixer_scan);
        const Slot whole =
            tokens_to_heads(writer, "mixer.to_heads", pieces(d), by_sequence(writer, d, d.scan_in_width));
        script.drop(std::exchange(packed, whole));
    }
    Slot input = packed;
    if (transposes(writer)) input = transposed(writer, "scan.input", by_batch(writer, d, d.scan_in_width));
    mamba.scan = mamba_scan_forward(writer, d, input);
    Slot output = mamba.scan.output;
    if (transposes(writer)) {
        script.drop(
            std::exchange(output, transposed(writer, "scan.output_by_sequence", by_sequence(writer, d, d.scan_inner))));
        script.drop(input);
    }
    if (exchanges(writer))
        script.drop(
            std::exchange(output, heads_to_tokens(writer, "mixer.to_tokens", d.inner, writer.dim.full_shape(d.inner))));
    return output;
}

/// Drops the gradient of the gated output and returns that of the packed tensor.
Slot mix_backward(Writer& writer, const MambaDimensions& d, const Mamba& mamba, Slot gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_scan);
    if (exchanges(writer))
        script.drop(std::exchange(gradient, tokens_to_heads(writer, "mixer.to_tokens.backward", {d.inner},
                                                            by_sequence(writer, d, d.scan_inner))));
    // The transposes of the outputs need no copy in the backward: the scan takes strided gradients, and so does in_proj
    // only after a copy.
    Slot result = mamba_scan_backward(writer, d, mamba.scan, gradient);
    if (exchanges(writer)) {
        std::int64_t sent = 0;
        for (std::int64_t width : pieces(d)) sent += width;
        script.drop(std::exchange(
            result, heads_to_tokens(writer, "mixer.to_heads.backward", sent, writer.dim.full_shape(d.in_width))));
    } else if (transposes(writer)) {
        script.drop(
            std::exchange(result, transposed(writer, "in_proj.output_gradient", writer.dim.full_shape(d.in_width))));
    }
    return result;
}

std::int64_t norm_traffic(const Writer& writer, const MambaDimensions& d, std::int64_t tensors) {
    return tensors * 2 * writer.dim.tokens * d.inner;
}

/// Norm of each group of the gated output, which it drops.
Slot gated_norm_forward(Writer& writer, const MambaDimensions& d, Mamba& mamba, Slot gated) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_norm);
    const Slot output = writer.make("gated_norm.output", writer.dim.full_shape(d.inner));
    const Slot statistic = writer.make("gated_norm.rstd", {d.groups * writer.dim.tokens}, DataType::fp32);
    writer.memory_kernel("gated_norm.forward", norm_traffic(writer, d, 2));
    mamba.norm_input = script.save(gated);
    mamba.norm_statistic = script.save(statistic);
    script.drop(statistic);
    script.drop(gated);
    return output;
}

Slot gated_norm_backward(Writer& writer, const MambaDimensions& d, const Mamba& mamba, Slot gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mixer_norm);
    const Slot result = writer.make("gated_norm.input_gradient", writer.dim.full_shape(d.inner));
    for (SavedIndex saved : {mamba.norm_input, mamba.norm_statistic}) script.read(saved);
    writer.memory_kernel("gated_norm.backward", norm_traffic(writer, d, 3));
    writer.accumulate_small_gradient("gated_norm.weight", {d.inner});
    for (SavedIndex saved : {mamba.norm_input, mamba.norm_statistic}) script.forget(saved);
    script.drop(gradient);
    return result;
}

}  // namespace

Mamba mamba_forward(Writer& writer, Slot input) {
    ScriptBuilder& script = writer.script;
    const MambaDimensions d = mamba_dimensions(writer.dim, writer.model);
    Mamba mamba;
    mamba.in_proj = norm_linear_forward(writer, in_site(d.in_width), input);
    Slot packed = mamba.in_proj.output;
    const Slot gated = mix(writer, d, mamba, packed);
    const Slot normed = gated_norm_forward(writer, d, mamba, gated);
    mamba.out_proj = row_linear_forward(writer, out_site(d.inner), normed);
    script.drop(normed);
    script.drop(packed);
    return mamba;
}

void mamba_backward(Writer& writer, const Mamba& mamba, Slot grad_input) {
    const MambaDimensions d = mamba_dimensions(writer.dim, writer.model);
    const Slot normed_gradient = row_linear_backward(writer, out_site(d.inner), mamba.out_proj);
    const Slot gated_gradient = gated_norm_backward(writer, d, mamba, normed_gradient);
    const Slot packed_gradient = mix_backward(writer, d, mamba, gated_gradient);
    norm_linear_backward(writer, in_site(d.in_width), mamba.in_proj, packed_gradient, grad_input);
}

void mamba_parameters(Writer& writer) {
    const MambaDimensions d = mamba_dimensions(writer.dim, writer.model);
    norm_linear_parameters(writer, in_site(d.in_width));
    writer.sharded_parameter("conv1d.weight", {d.convolved, 1, MambaDimensions::kTaps});
    writer.sharded_parameter("conv1d.bias", {d.convolved});
    for (const char* name : {"dt_bias", "A_log", "D"}) writer.sharded_parameter(name, {d.heads});
    writer.sharded_parameter("gated_norm.weight", {d.inner});
    row_linear_parameters(writer, out_site(d.inner));
}

}  // namespace stowage::layers
