#include "planner/layers/linear.hpp"

namespace stowage::layers {
namespace {

std::int64_t full_elements(const Dimensions& dim) { return dim.tokens * dim.hidden; }

/// Input gradient and weight gradient; the collective of the former runs beside the latter.
Slot column_gradients(Writer& writer, const LinearSite& site, SavedIndex normed) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const bool gathers = dim.sequence_parallel;
    Slot total{};
    script.read(normed);
    if (gathers) {
        total = writer.make(site.name + ".regathered", dim.full_shape(dim.hidden));
        writer.tensor_collective(site.name + ".regather", CollectiveKind::all_gather, full_elements(dim), false);
    }
    Slot gradient = writer.make(site.name + ".dgrad", dim.full_shape(dim.hidden));
    writer.gemm(site.name + ".dgrad", dim.tokens, dim.hidden, site.width);
    const Slot whole = gradient;
    if (gathers) {
        script.join_collectives();
        gradient = writer.make(site.name + ".dgrad_shard", dim.hidden_shape());
        writer.tensor_collective(site.name + ".dgrad_scatter", CollectiveKind::reduce_scatter, full_elements(dim),
                                 false);
    } else {
        writer.tensor_collective(site.name + ".dgrad_reduce", CollectiveKind::all_reduce, full_elements(dim), false);
    }
    writer.weight_gradient(site.name + ".wgrad", dim.tokens, site.width, dim.hidden);
    if (dim.tensor > 1) script.join_collectives();
    if (gathers) {
        script.drop(whole);
        script.drop(total);
    }
    return gradient;
}

}  // namespace

NormLinear norm_linear_forward(Writer& writer, const LinearSite& site, Slot input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(site.norm_part);
    const Slot normed = writer.make(site.norm_name + ".output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, site.norm_name, dim.local_tokens, dim.hidden);
    script.part(site.part);
    Slot total{};
    if (dim.sequence_parallel) {
        total = writer.make(site.name + ".gathered", dim.full_shape(dim.hidden));
        writer.tensor_collective(site.name + ".gather", CollectiveKind::all_gather, full_elements(dim));
    }
    NormLinear linear;
    linear.output = writer.make(site.name + ".output", dim.full_shape(site.width));
    writer.gemm(site.name + ".forward", dim.tokens, site.width, dim.hidden);
    linear.norm = save_norm(writer, site.norm_name, dim.local_tokens, dim.hidden, input, statistics, site.group);
    linear.normed = script.save(normed, site.group);
    if (dim.sequence_parallel) script.drop(total);
    script.drop(normed);
    return linear;
}

void norm_linear_backward(Writer& writer, const LinearSite& site, const NormLinear& linear, Slot gradient,
                          Slot grad_input) {
    ScriptBuilder& script = writer.script;
    script.part(site.part);
    const Slot normed_gradient = column_gradients(writer, site, linear.normed);
    if (site.bias) {
        writer.memory_kernel(site.name + ".bias_gradient", 2 * writer.dim.tokens * site.width);
        writer.accumulate_small_gradient(site.name + ".bias", {site.width});
    }
    script.part(site.norm_part);
    script.allocate(grad_input);
    norm_backward(writer, linear.norm);
    script.forget(linear.normed);
    script.drop(normed_gradient);
    script.drop(gradient);
}

RowLinear row_linear_forward(Writer& writer, const LinearSite& site, Slot input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(site.part);
    RowLinear linear;
    linear.output = writer.make(site.name + ".output", dim.full_shape(dim.hidden));
    writer.gemm(site.name + ".forward", dim.tokens, dim.hidden, site.width);
    if (dim.sequence_parallel) {
        const Slot partial = linear.output;
        linear.output = writer.make(site.name + ".scattered", dim.hidden_shape());
        writer.tensor_collective(site.name + ".scatter", CollectiveKind::reduce_scatter, full_elements(dim));
        script.drop(partial);
    } else {
        writer.tensor_collective(site.name + ".reduce", CollectiveKind::all_reduce, full_elements(dim));
    }
    linear.input = script.save(input, site.group);
    return linear;
}

Slot row_linear_backward(Writer& writer, const LinearSite& site, const RowLinear& linear) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(site.part);
    Slot total{};
    if (dim.sequence_parallel) {
        total = writer.make(site.name + ".grad_gathered", dim.full_shape(dim.hidden));
        writer.tensor_collective(site.name + ".grad_gather", CollectiveKind::all_gather, full_elements(dim));
    }
    const Slot gradient = writer.make(site.name + ".dgrad", dim.full_shape(site.width));
    writer.gemm(site.name + ".dgrad", dim.tokens, site.width, dim.hidden);
    script.read(linear.input);
    writer.weight_gradient(site.name + ".wgrad", dim.tokens, dim.hidden, site.width);
    script.forget(linear.input);
    if (dim.sequence_parallel) script.drop(total);
    return gradient;
}

void norm_linear_parameters(Writer& writer, const LinearSite& site) {
    writer.norm_parameters(site.norm_name, writer.dim.hidden);
    writer.sharded_parameter(site.name + ".weight", {site.width, writer.dim.hidden});
    if (site.bias) writer.sharded_parameter(site.name + ".bias", {site.width});
}

void row_linear_parameters(Writer& writer, const LinearSite& site) {
    writer.sharded_parameter(site.name + ".weight", {writer.dim.hidden, site.width});
    if (site.bias) writer.replicated_parameter(site.name + ".bias", {writer.dim.hidden});
}

}  // namespace stowage::layers
