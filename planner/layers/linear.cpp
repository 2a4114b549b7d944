#include "planner/layers/linear.hpp"

namespace stowage::layers {
namespace {

std::int64_t full_elements(const Dimensions& dim) { return dim.tokens * dim.hidden; }

std::int64_t input_width(const Writer& writer, const LinearSite& site) {
    return site.other_width > 0 ? site.other_width : writer.dim.hidden;
}

/// Whether the input lies in shares of the sequence and is gathered for the GEMM.
bool gathers(const Writer& writer, const LinearSite& site) {
    return site.split == Split::columns && writer.dim.sequence_parallel;
}

/// Tokens that the GEMM works on.
std::int64_t rows_of(const Writer& writer, const LinearSite& site) {
    return site.split == Split::none ? writer.dim.local_tokens : writer.dim.tokens;
}

Shape shape_of(const Writer& writer, std::int64_t rows, std::int64_t width) {
    return {rows / writer.dim.micro_batch, writer.dim.micro_batch, width};
}

void gather(Writer& writer, const std::string& name, std::int64_t width, bool blocks_main) {
    writer.tensor_collective_bytes(name, CollectiveKind::all_gather, operand_bytes(writer, writer.dim.tokens * width),
                                   blocks_main);
}

/// y = x W on an input [local tokens, in]; saves the input.
Linear multiply(Writer& writer, const LinearSite& site, Slot input, std::optional<Slot> saved_as = std::nullopt) {
    const Dimensions& dim = writer.dim;
    const std::int64_t in = input_width(writer, site);
    const bool whole = gathers(writer, site);
    Operand operand = make_operand(writer, site.name, input, dim.local_tokens, in,
                                   {whole, site.save_original || saved_as.has_value()});
    operand.source = saved_as.value_or(input);
    Slot total{};
    if (whole) {
        total = make_gathered(writer, site.name + ".gathered", dim.tokens, in);
        gather(writer, site.name + ".gather", in, true);
    }
    Linear linear;
    linear.output = writer.make(site.name + ".output", shape_of(writer, rows_of(writer, site), site.width));
    writer.linear_gemm(site.name + ".forward", rows_of(writer, site), site.width, in);
    linear.input = save_operand(writer, site.name, operand, dim.local_tokens, in, site.group);
    if (whole) writer.script.drop(total);
    return linear;
}

/// Reduces the input's gradient over the tensor ranks beside the weight gradient; returns this rank's share.
Slot reduce_beside(Writer& writer, const LinearSite& site, Slot gradient, std::int64_t in) {
    const Dimensions& dim = writer.dim;
    if (site.split == Split::none) return gradient;
    if (!gathers(writer, site)) {
        writer.tensor_collective(site.name + ".dgrad_reduce", CollectiveKind::all_reduce, dim.tokens * in, false);
        return gradient;
    }
    writer.script.join_collectives();
    const Slot share = writer.make(site.name + ".dgrad_shard", shape_of(writer, dim.local_tokens, in));
    writer.tensor_collective(site.name + ".dgrad_scatter", CollectiveKind::reduce_scatter, dim.tokens * in, false);
    return share;
}

/// Input gradient and weight gradient; the collective of the former runs beside the latter.
Slot column_gradients(Writer& writer, const LinearSite& site, const SavedOperand& input) {
    ScriptBuilder& script = writer.script;
    const std::int64_t in = input_width(writer, site);
    const std::int64_t rows = rows_of(writer, site);
    const bool whole = gathers(writer, site);
    read_operand(writer, input);
    const std::vector<Slot> converted = convert_gradient(writer, site.name, rows, site.width);
    const std::vector<Slot> reconverted = convert_saved(writer, input);
    Slot total{};
    if (whole) {
        total = make_gathered(writer, site.name + ".regathered", writer.dim.tokens, in);
        gather(writer, site.name + ".regather", in, false);
    }
    const Slot partial = writer.make(site.name + ".dgrad", shape_of(writer, rows, in));
    writer.linear_gemm(site.name + ".dgrad", rows, in, site.width);
    const Slot gradient = reduce_beside(writer, site, partial, in);
    writer.linear_weight_gradient(site.name + ".wgrad", rows, site.width, in);
    if (site.split != Split::none && writer.dim.tensor > 1) script.join_collectives();
    if (whole) {
        script.drop(partial);
        script.drop(total);
    }
    drop_all(writer, converted);
    drop_all(writer, reconverted);
    return gradient;
}

void bias_gradient(Writer& writer, const LinearSite& site) {
    if (!site.bias) return;
    writer.memory_kernel(site.name + ".bias_gradient", 2 * rows_of(writer, site) * site.width);
    writer.accumulate_small_gradient(site.name + ".bias", {site.width});
}

}  // namespace

NormLinear norm_linear_forward(Writer& writer, const LinearSite& site, Slot input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t in = input_width(writer, site);
    script.part(site.norm_part);
    const Slot normed = writer.make(site.norm_name + ".output", shape_of(writer, dim.local_tokens, in));
    const NormStatistics statistics = run_norm(writer, site.norm_name, dim.local_tokens, in);
    script.part(site.part);
    NormLinear result;
    const Linear linear = multiply(writer, site, normed);
    result.output = linear.output;
    result.normed = linear.input;
    result.norm = save_norm(writer, site.norm_name, dim.local_tokens, in, input, statistics, site.group);
    script.drop(normed);
    return result;
}

void norm_linear_backward(Writer& writer, const LinearSite& site, const NormLinear& linear, Slot gradient,
                          Slot grad_input) {
    ScriptBuilder& script = writer.script;
    script.part(site.part);
    const Slot normed_gradient = column_gradients(writer, site, linear.normed);
    bias_gradient(writer, site);
    script.part(site.norm_part);
    script.allocate(grad_input);
    norm_backward(writer, linear.norm);
    forget_operand(writer, linear.normed);
    script.drop(normed_gradient);
    script.drop(gradient);
}

Linear linear_forward(Writer& writer, const LinearSite& site, Slot input, std::optional<Slot> saved_as) {
    writer.script.part(site.part);
    return multiply(writer, site, input, saved_as);
}

Slot linear_backward(Writer& writer, const LinearSite& site, const Linear& linear, Slot gradient) {
    writer.script.part(site.part);
    const Slot result = column_gradients(writer, site, linear.input);
    bias_gradient(writer, site);
    forget_operand(writer, linear.input);
    writer.script.drop(gradient);
    return result;
}

RowLinear row_linear_forward(Writer& writer, const LinearSite& site, Slot input) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(site.part);
    const Operand operand = make_operand(writer, site.name, input, dim.tokens, site.width, {false, site.save_original});
    RowLinear linear;
    linear.output = writer.make(site.name + ".output", dim.full_shape(dim.hidden));
    writer.linear_gemm(site.name + ".forward", dim.tokens, dim.hidden, site.width);
    if (dim.sequence_parallel) {
        const Slot partial = linear.output;
        linear.output = writer.make(site.name + ".scattered", dim.hidden_shape());
        writer.tensor_collective(site.name + ".scatter", CollectiveKind::reduce_scatter, full_elements(dim));
        script.drop(partial);
    } else {
        writer.tensor_collective(site.name + ".reduce", CollectiveKind::all_reduce, full_elements(dim));
    }
    linear.input = save_operand(writer, site.name, operand, dim.tokens, site.width, site.group);
    return linear;
}

Slot row_linear_backward(Writer& writer, const LinearSite& site, const RowLinear& linear) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(site.part);
    std::vector<Slot> converted = convert_gradient(writer, site.name, dim.local_tokens, dim.hidden);
    if (dim.sequence_parallel) {
        const Slot total = make_gathered(writer, site.name + ".grad_gathered", dim.tokens, dim.hidden);
        gather(writer, site.name + ".grad_gather", dim.hidden, true);
        converted.push_back(total);
    }
    const Slot gradient = writer.make(site.name + ".dgrad", dim.full_shape(site.width));
    writer.linear_gemm(site.name + ".dgrad", dim.tokens, site.width, dim.hidden);
    read_operand(writer, linear.input);
    const std::vector<Slot> reconverted = convert_saved(writer, linear.input);
    writer.linear_weight_gradient(site.name + ".wgrad", dim.tokens, dim.hidden, site.width);
    forget_operand(writer, linear.input);
    drop_all(writer, reconverted);
    drop_all(writer, converted);
    return gradient;
}

void linear_parameters(Writer& writer, const LinearSite& site) {
    const Shape shape{site.width, input_width(writer, site)};
    if (site.split == Split::none)
        writer.replicated_parameter(site.name + ".weight", shape);
    else
        writer.sharded_parameter(site.name + ".weight", shape);
    if (site.bias) writer.sharded_parameter(site.name + ".bias", {site.width});
}

void norm_linear_parameters(Writer& writer, const LinearSite& site) {
    writer.norm_parameters(site.norm_name, input_width(writer, site));
    linear_parameters(writer, site);
}

void row_linear_parameters(Writer& writer, const LinearSite& site) {
    writer.sharded_parameter(site.name + ".weight", {writer.dim.hidden, site.width});
    if (site.bias) writer.replicated_parameter(site.name + ".bias", {writer.dim.hidden});
}

}  // namespace stowage::layers
