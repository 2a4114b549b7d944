#include "planner/layers/stowage/stowage_writer.hpp"

#include <functional>
#include <numeric>
#include <utility>

#include "planner/layers/states_formats.hpp"

namespace stowage::layers {
namespace {

using Kind = CallOperand::Kind;

std::int64_t product(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>{});
}

CallOperand of(Slot slot, Access access) { return {Kind::tensor, static_cast<std::uint16_t>(slot), access}; }

}  // namespace

CallOperand reads(Slot slot) { return of(slot, Access::read); }
CallOperand writes(Slot slot) { return of(slot, Access::write); }
CallOperand updates(Slot slot) { return of(slot, Access::read_write); }
CallOperand reads(ParameterIndex parameter) {
    return {Kind::parameter, static_cast<std::uint16_t>(parameter), Access::read};
}
CallOperand adds_to(ParameterIndex parameter) {
    return {Kind::gradient, static_cast<std::uint16_t>(parameter), Access::read_write};
}
CallOperand reads(StowageState state) { return {Kind::state, static_cast<std::uint16_t>(state), Access::read}; }
CallOperand writes(StowageState state) { return {Kind::state, static_cast<std::uint16_t>(state), Access::write}; }
CallOperand updates(StowageState state) { return {Kind::state, static_cast<std::uint16_t>(state), Access::read_write}; }

StowageWriter::StowageWriter(ScriptBuilder& builder, const Dimensions& dimensions, const types::Scenario& job)
    : script(builder),
      dim(dimensions),
      scenario(job),
      model(job.model),
      gradient_type_(state_formats(job).gradient == 4 ? DataType::fp32 : DataType::bf16) {}

Slot StowageWriter::make(std::string name, Shape shape, DataType type) {
    const Slot slot = script.tensor(std::move(name), std::move(shape), type);
    script.allocate(slot);
    return slot;
}

ParameterIndex StowageWriter::declare(Parameter parameter) {
    return static_cast<ParameterIndex>(script.parameter(std::move(parameter)));
}

ParameterIndex StowageWriter::parameter(std::string name, Shape shape, std::optional<std::int64_t> counted) {
    const std::int64_t elements = counted.value_or(product(shape));
    return declare({std::move(name), std::move(shape), ParameterKind::dense, elements});
}

ParameterIndex StowageWriter::shared_parameter(std::string name, Shape shape) {
    return declare({std::move(name), std::move(shape), ParameterKind::dense, 0, true});
}

ParameterIndex StowageWriter::expert_parameter(std::string name, Shape shape) {
    const std::int64_t elements = product(shape) * dim.expert;
    return declare({std::move(name), std::move(shape), ParameterKind::expert, elements});
}

ParameterIndex StowageWriter::split_parameter(std::string name, Shape shape) {
    const std::int64_t elements = product(shape) * dim.tensor;
    return parameter(std::move(name), std::move(shape), elements);
}

LinearWeights StowageWriter::linear(const std::string& name, std::int64_t columns, std::int64_t depth, bool bias) {
    LinearWeights linear{name, columns, depth, split_parameter(name + ".weight", {columns, depth}), {}};
    if (bias) linear.bias = split_parameter(name + ".bias", {columns});
    return linear;
}

StowageNorm StowageWriter::declare_norm(const std::string& name, std::int64_t columns, Shape shape) {
    StowageNorm norm;
    norm.name = name;
    norm.columns = columns;
    norm.weight = parameter(name + ".weight", {columns});
    if (layer_norm()) norm.bias = parameter(name + ".bias", {columns});
    norm.output = script.tensor(name + ".output", std::move(shape));
    norm.rstd = script.tensor(name + ".rstd", {dim.local_tokens}, DataType::fp32);
    if (layer_norm()) norm.mean = script.tensor(name + ".mean", {dim.local_tokens}, DataType::fp32);
    return norm;
}

StowageNorm StowageWriter::norm(const std::string& name) { return declare_norm(name, dim.hidden, dim.hidden_shape()); }

StowageNorm StowageWriter::latent_norm(const std::string& name, std::int64_t columns, std::int64_t stride) {
    StowageNorm norm = declare_norm(name, columns, dim.full_shape(columns));
    norm.stride = stride;
    return norm;
}

void StowageWriter::memory_kernel(std::string name, std::int64_t traffic, KernelCall call) {
    Kernel kernel;
    kernel.name = std::move(name);
    kernel.traffic = Bytes{traffic};
    kernel.call = std::move(call);
    script.kernel(std::move(kernel));
}

void StowageWriter::attention_kernel(std::string name, double flops, std::int64_t traffic, const AttentionWork& work,
                                     KernelCall call) {
    Kernel kernel;
    kernel.name = std::move(name);
    kernel.kind = KernelClass::attention;
    kernel.flops = flops;
    kernel.traffic = Bytes{traffic};
    kernel.attention = work;
    kernel.call = std::move(call);
    script.kernel(std::move(kernel));
}

CallSizes StowageWriter::rows_and_columns(std::int64_t columns) const {
    CallSizes sizes;
    sizes.rows = dim.tokens;
    sizes.columns = columns;
    sizes.batch = dim.micro_batch;
    sizes.sequence = dim.sequence;
    sizes.gradient_type = gradient_type_;
    return sizes;
}

CallSizes StowageWriter::local_rows_and_columns(std::int64_t columns) const {
    CallSizes sizes = rows_and_columns(columns);
    sizes.rows = dim.local_tokens;
    return sizes;
}

// --------------------------------------------------------------------------------------------------------------- norms

CallSizes StowageWriter::norm_sizes(const StowageNorm& norm) const {
    CallSizes sizes = local_rows_and_columns(norm.columns);
    sizes.stride = norm.stride;
    sizes.value = kNormEpsilon;
    sizes.layer_norm = layer_norm();
    return sizes;
}

void StowageWriter::run_norm(const StowageNorm& norm, CallOperand input) {
    script.allocate(norm.output);
    script.allocate(norm.rstd);
    if (norm.mean) script.allocate(*norm.mean);
    KernelCall call{Call::norm_forward, norm_sizes(norm), {input, reads(norm.weight)}};
    if (norm.bias) call.operands.push_back(reads(*norm.bias));
    call.operands.push_back(writes(norm.output));
    call.operands.push_back(writes(norm.rstd));
    if (norm.mean) call.operands.push_back(writes(*norm.mean));
    memory_kernel(norm.name + ".forward", 2 * 2 * dim.local_tokens * norm.columns, std::move(call));
}

void StowageWriter::norm_backward(const StowageNorm& norm, CallOperand input, CallOperand rstd,
                                  std::optional<CallOperand> mean, const NormGradients& gradients) {
    if (norm.stride == 0) script.allocate(gradients.input);
    const std::int64_t sums = norm.bias ? 2 : 1;
    const std::int64_t partials = norm_partials(dim.local_tokens);
    const Slot workspace = make(norm.name + ".partial_sums", {sums, partials, norm.columns}, DataType::fp32);
    KernelCall call{Call::norm_backward, norm_sizes(norm), {input, reads(norm.weight), rstd}};
    call.sizes.has_addend = gradients.residual.has_value();
    call.sizes.workspace_bytes = 4 * sums * partials * norm.columns;
    if (mean) call.operands.push_back(*mean);
    call.operands.push_back(reads(gradients.output));
    if (gradients.residual) call.operands.push_back(reads(*gradients.residual));
    call.operands.push_back(writes(gradients.input));
    call.operands.push_back(adds_to(norm.weight));
    if (norm.bias) call.operands.push_back(adds_to(*norm.bias));
    call.operands.push_back(writes(workspace));
    const std::int64_t tensors = gradients.residual ? 4 : 3;
    const std::int64_t traffic = 2 * tensors * dim.local_tokens * norm.columns + 2 * call.sizes.workspace_bytes;
    memory_kernel(norm.name + ".backward", traffic, std::move(call));
    script.drop(workspace);
}

// ------------------------------------------------------------------------------------------------------------- linears

CallSizes StowageWriter::gemm_sizes(const LinearWeights& linear) const {
    CallSizes sizes = rows_and_columns(linear.columns);
    sizes.depth = linear.depth;
    sizes.workspace_bytes = kGemmWorkspaceBytes;
    return sizes;
}

/// Operands once each, the result's bytes apart from those of the two factors.
void StowageWriter::gemm(std::string name, const LinearWeights& linear, std::int64_t operand_elements,
                         std::int64_t result, KernelCall call) {
    Kernel kernel;
    kernel.name = std::move(name);
    kernel.kind = KernelClass::gemm;
    kernel.flops =
        2.0 * static_cast<double>(dim.tokens) * static_cast<double>(linear.columns) * static_cast<double>(linear.depth);
    kernel.traffic = Bytes{2 * operand_elements + result};
    kernel.result = Bytes{result};
    kernel.call = std::move(call);
    script.kernel(std::move(kernel));
}

void StowageWriter::run_linear(const LinearWeights& linear, CallOperand input, Slot output,
                               std::optional<CallOperand> addend) {
    script.allocate(output);
    KernelCall call{Call::linear_forward, gemm_sizes(linear), {input, reads(linear.weight)}};
    call.sizes.has_bias = linear.bias.has_value();
    call.sizes.has_addend = addend.has_value();
    if (linear.bias) call.operands.push_back(reads(*linear.bias));
    if (addend) call.operands.push_back(*addend);
    call.operands.push_back(writes(output));
    call.operands.push_back(writes(StowageState::workspace));
    const std::int64_t result = 2 * dim.tokens * linear.columns * (addend ? 2 : 1);
    gemm(linear.name + ".forward", linear, (dim.tokens + linear.columns) * linear.depth, result, std::move(call));
}

Slot StowageWriter::input_gradient(const LinearWeights& linear, CallOperand gradient) {
    const Slot result = make(linear.name + ".input_gradient", dim.full_shape(linear.depth));
    input_gradient(linear, gradient, result);
    return result;
}

void StowageWriter::input_gradient(const LinearWeights& linear, CallOperand gradient, Slot result) {
    gemm(linear.name + ".dgrad", linear, (dim.tokens + linear.depth) * linear.columns, 2 * dim.tokens * linear.depth,
         {Call::linear_input_gradient,
          gemm_sizes(linear),
          {gradient, reads(linear.weight), writes(result), writes(StowageState::workspace)}});
}

void StowageWriter::weight_gradient(const LinearWeights& linear, CallOperand gradient, CallOperand input) {
    script.phase(Phase::weight_gradient);
    const std::int64_t sum = 2 * gradient_bytes() * linear.columns * linear.depth;  // read and written
    gemm(linear.name + ".wgrad", linear, dim.tokens * (linear.columns + linear.depth), sum,
         {Call::linear_weight_gradient,
          gemm_sizes(linear),
          {gradient, input, adds_to(linear.weight), writes(StowageState::workspace)}});
    if (linear.bias) bias_gradient(linear, gradient);
    script.phase(Phase::backward);
}

void StowageWriter::bias_gradient(const LinearWeights& linear, CallOperand gradient) {
    const std::int64_t partials = norm_partials(dim.tokens);
    const Slot workspace = make(linear.name + ".bias_partial_sums", {partials, linear.columns}, DataType::fp32);
    KernelCall call{
        Call::bias_gradient, rows_and_columns(linear.columns), {gradient, adds_to(*linear.bias), writes(workspace)}};
    call.sizes.workspace_bytes = 4 * partials * linear.columns;
    const std::int64_t traffic = 2 * dim.tokens * linear.columns + 2 * call.sizes.workspace_bytes;
    memory_kernel(linear.name + ".bias_gradient", traffic, std::move(call));
    script.drop(workspace);
}

}  // namespace stowage::layers
