#include "planner/layers/stowage/fp8_linear.hpp"

#include <utility>

namespace stowage::layers {
namespace {

CallOperand of_weight(CallOperand::Kind kind, std::size_t parameter, Access access) {
    return {kind, static_cast<std::uint16_t>(parameter), access};
}
CallOperand of_weight(CallOperand::Kind kind, ParameterIndex parameter) {
    return of_weight(kind, static_cast<std::size_t>(parameter), Access::read);
}

/// Reads bf16 and writes `copies` FP8 numbers of each.
std::int64_t conversion_traffic(const CallSizes& sizes) {
    const std::int64_t copies = (sizes.plain ? 1 : 0) + (sizes.transposed ? 1 : 0);
    return sizes.rows * sizes.columns * (2 + copies);
}

}  // namespace

Fp8Linear::Fp8Linear(StowageWriter& writer, const LinearWeights& linear, bool keeps_copy)
    : writer_(writer), linear_(linear), keeps_copy_(keeps_copy) {
    const std::int64_t tokens = writer.dim.tokens;
    const auto declare = [&](const char* what, Shape shape, DataType type) {
        return writer.script.tensor(linear.name + what, std::move(shape), type);
    };
    scales_ = declare(".input_scales", {2}, DataType::fp32);
    plain_ = declare(".input_fp8", {tokens, linear.depth}, DataType::fp8);
    transposed_ = declare(".input_fp8_transposed", {linear.depth, tokens}, DataType::fp8);
    gradient_scales_ = declare(".gradient_scales", {2}, DataType::fp32);
    plain_gradient_ = declare(".gradient_fp8", {tokens, linear.columns}, DataType::fp8);
    transposed_gradient_ = declare(".gradient_fp8_transposed", {linear.columns, tokens}, DataType::fp8);
}

CallSizes Fp8Linear::conversion(std::int64_t columns, bool gradient) const {
    CallSizes sizes = writer_.rows_and_columns(columns);
    sizes.e5m2 = gradient;
    return sizes;
}

/// The partial results lie in the scratch memory of the GEMMs: everything here is on the main stream.
void Fp8Linear::measure(const std::string& name, CallOperand from, const CallSizes& sizes, Slot scales) {
    writer_.script.allocate(scales);
    KernelCall call{Call::fp8_scale, sizes, {from, writes(scales), writes(StowageState::workspace)}};
    call.sizes.workspace_bytes = 4 * norm_partials(sizes.rows);
    writer_.memory_kernel(name + "_scale", 2 * sizes.rows * sizes.columns, std::move(call));
}

void Fp8Linear::quantize(const std::string& name, CallOperand from, CallOperand scales, CallSizes sizes,
                         std::optional<Slot> plain, std::optional<Slot> transposed) {
    sizes.plain = plain.has_value();
    sizes.transposed = transposed.has_value();
    KernelCall call{Call::fp8_quantize, sizes, {from, scales}};
    for (const std::optional<Slot>& copy : {plain, transposed}) {
        if (!copy) continue;
        writer_.script.allocate(*copy);
        call.operands.push_back(writes(*copy));
    }
    writer_.memory_kernel(name + "_to_fp8", conversion_traffic(sizes), std::move(call));
}

// ------------------------------------------------------------------------------------------------------------- forward

void Fp8Linear::multiply(CallOperand input, CallOperand scales, Slot output, std::optional<CallOperand> addend,
                         std::optional<Slot> transposed) {
    using Kind = CallOperand::Kind;
    quantize(linear_.name + ".input", input, scales, conversion(linear_.depth, false), plain_, transposed);
    writer_.script.allocate(output);
    KernelCall call{Call::fp8_linear_forward,
                    writer_.gemm_sizes(linear_),
                    {reads(plain_), scales, of_weight(Kind::fp8_weight, linear_.weight),
                     of_weight(Kind::fp8_weight_scales, linear_.weight)}};
    call.sizes.has_bias = linear_.bias.has_value();
    call.sizes.has_addend = addend.has_value();
    if (linear_.bias) call.operands.push_back(reads(*linear_.bias));
    if (addend) call.operands.push_back(*addend);
    call.operands.push_back(writes(output));
    call.operands.push_back(writes(StowageState::workspace));
    const std::int64_t tokens = writer_.dim.tokens;
    writer_.gemm(linear_.name + ".forward", linear_, (tokens + linear_.columns) * linear_.depth,
                 2 * tokens * linear_.columns * (addend ? 2 : 1), std::move(call));
    writer_.script.drop(plain_);
}

void Fp8Linear::save(std::optional<Module> group) {
    ScriptBuilder& script = writer_.script;
    if (keeps_copy_) {
        copy_ = script.save(transposed_, group);
        script.drop(transposed_);
    }
    saved_scales_ = script.save(scales_);
    script.drop(scales_);
}

void Fp8Linear::forward(CallOperand input, Slot output, std::optional<CallOperand> addend,
                        std::optional<Module> group) {
    measure(linear_.name + ".input", input, conversion(linear_.depth, false), scales_);
    multiply(input, reads(scales_), output, addend,
             keeps_copy_ ? std::optional<Slot>(transposed_) : std::optional<Slot>());
    save(group);
}

void Fp8Linear::forward_again(CallOperand input, Slot output) {
    writer_.script.read(saved_scales_);
    multiply(input, writer_.script.operand(saved_scales_), output, std::nullopt, std::nullopt);
}

// ------------------------------------------------------------------------------------------------------------ backward

Slot Fp8Linear::input_gradient(CallOperand gradient) {
    using Kind = CallOperand::Kind;
    const std::string name = linear_.name + ".gradient";
    const CallSizes sizes = conversion(linear_.columns, true);
    measure(name, gradient, sizes, gradient_scales_);
    quantize(name, gradient, reads(gradient_scales_), sizes, plain_gradient_, transposed_gradient_);
    const std::int64_t tokens = writer_.dim.tokens;
    const Slot result = writer_.make(linear_.name + ".input_gradient", writer_.dim.full_shape(linear_.depth));
    writer_.gemm(
        linear_.name + ".dgrad", linear_, (tokens + linear_.depth) * linear_.columns, 2 * tokens * linear_.depth,
        {Call::fp8_linear_input_gradient,
         writer_.gemm_sizes(linear_),
         {reads(plain_gradient_), reads(gradient_scales_), of_weight(Kind::fp8_transposed_weight, linear_.weight),
          of_weight(Kind::fp8_weight_scales, linear_.weight), writes(result), writes(StowageState::workspace)}});
    writer_.script.drop(plain_gradient_);
    return result;
}

/// The kept copy, or one that is made now.
CallOperand Fp8Linear::transposed_input(const std::function<CallOperand()>& input) {
    ScriptBuilder& script = writer_.script;
    script.read(saved_scales_);
    if (copy_) {
        script.read(*copy_);
        return script.operand(*copy_);
    }
    quantize(linear_.name + ".saved_input", input(), script.operand(saved_scales_), conversion(linear_.depth, false),
             std::nullopt, transposed_);
    return reads(transposed_);
}

void Fp8Linear::weight_gradient(CallOperand gradient, const std::function<CallOperand()>& input) {
    ScriptBuilder& script = writer_.script;
    const CallOperand transposed = transposed_input(input);
    script.phase(Phase::weight_gradient);
    const std::int64_t sum = 2 * writer_.gradient_bytes() * linear_.columns * linear_.depth;  // read and written
    writer_.gemm(linear_.name + ".wgrad", linear_, writer_.dim.tokens * (linear_.columns + linear_.depth), sum,
                 {Call::fp8_linear_weight_gradient,
                  writer_.gemm_sizes(linear_),
                  {reads(transposed_gradient_), reads(gradient_scales_), transposed, script.operand(saved_scales_),
                   adds_to(linear_.weight), writes(StowageState::workspace)}});
    if (linear_.bias) writer_.bias_gradient(linear_, gradient);
    script.phase(Phase::backward);
    if (copy_)
        script.forget(*copy_);
    else
        script.drop(transposed_);
    script.forget(saved_scales_);
    script.drop(transposed_gradient_);
    script.drop(gradient_scales_);
}

// --------------------------------------------------------------------------------------------------------- preparation

namespace {

Part part_of(const std::string& parameter) {
    for (const Part part : {Part::qkv_linear, Part::attn_proj, Part::mlp_fc1, Part::mlp_fc2})
        if (parameter == std::string(name_of(part)) + ".weight") return part;
    return Part::optimizer;
}

void prepare_weight(ScriptBuilder& script, const Parameter& weight, std::size_t number) {
    using Kind = CallOperand::Kind;
    CallSizes sizes;
    sizes.rows = weight.shape[0];
    sizes.columns = weight.shape[1];
    const CallOperand from = of_weight(Kind::parameter, number, Access::read);
    CallOperand scales = of_weight(Kind::fp8_weight_scales, number, Access::write);
    const auto kernel = [&](const char* what, std::int64_t traffic, KernelCall call) {
        Kernel made;
        made.name = weight.name + what;
        made.traffic = Bytes{traffic};
        made.call = std::move(call);
        script.kernel(std::move(made));
    };
    script.part(part_of(weight.name));
    CallSizes measured = sizes;
    measured.workspace_bytes = 4 * norm_partials(sizes.rows);
    kernel("_scale", 2 * weight.elements(),
           {Call::fp8_scale, measured, {from, scales, writes(StowageState::workspace)}});
    scales.access = Access::read;
    sizes.plain = sizes.transposed = true;
    kernel("_to_fp8", conversion_traffic(sizes),
           {Call::fp8_quantize,
            sizes,
            {from, scales, of_weight(Kind::fp8_weight, number, Access::write),
             of_weight(Kind::fp8_transposed_weight, number, Access::write)}});
}

}  // namespace

std::optional<LayerScript> fp8_preparation(const LayerScript& layer) {
    ScriptBuilder script(layer.kind, layer.name + ", FP8 weights");
    script.begin_forward(Part::optimizer);
    bool any = false;
    for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
        if (!layer.parameters[i].fp8_copy) continue;
        prepare_weight(script, layer.parameters[i], i);
        any = true;
    }
    if (!any) return std::nullopt;
    return script.build();
}

}  // namespace stowage::layers
