#include "planner/layers/stowage/token_router.hpp"

#include "planner/layers/stowage/expert_rows.hpp"

namespace stowage::layers {

TokenRouter::TokenRouter(StowageWriter& writer)
    : writer_(writer), weight_(writer.parameter("router.weight", {writer.dim.experts, writer.dim.hidden})) {}

CallSizes TokenRouter::score_sizes() const {
    const types::Model& model = writer_.model;
    CallSizes sizes = row_sizes(writer_, writer_.dim.local_tokens, 0);
    sizes.experts = writer_.dim.experts;
    sizes.topk = writer_.dim.topk;
    sizes.router_groups = model.moe_router_num_groups;
    sizes.router_topk_groups = model.moe_router_group_topk;
    sizes.sigmoid = model.moe_router_score_function == types::RouterScore::sigmoid;
    sizes.softmax_first = model.moe_router_pre_softmax;
    sizes.value = model.moe_router_topk_scaling_factor;
    return sizes;
}

CallSizes TokenRouter::gemm_sizes() const {
    CallSizes sizes = row_sizes(writer_, writer_.dim.local_tokens, writer_.dim.experts);
    sizes.depth = writer_.dim.hidden;
    sizes.workspace_bytes = kGemmWorkspaceBytes;
    return sizes;
}

void TokenRouter::gemm(std::string name, std::int64_t result_bytes, std::int64_t operand_bytes, KernelCall call) {
    const Dimensions& dim = writer_.dim;
    Kernel kernel;
    kernel.name = std::move(name);
    kernel.kind = KernelClass::gemm;
    kernel.flops = 2.0 * static_cast<double>(dim.local_tokens) * static_cast<double>(dim.experts) *
                   static_cast<double>(dim.hidden);
    kernel.traffic = Bytes{result_bytes + operand_bytes};
    kernel.result = Bytes{result_bytes};
    kernel.call = std::move(call);
    writer_.script.kernel(std::move(kernel));
}

Slot TokenRouter::forward(CallOperand normed) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    const std::int64_t scores = dim.local_tokens * dim.experts;
    script.part(Part::router);
    const Slot logits = writer_.make("router.logits", {dim.local_tokens, dim.experts}, DataType::fp32);
    KernelCall call{
        Call::linear_forward, gemm_sizes(), {normed, reads(weight_), writes(logits), writes(StowageState::workspace)}};
    call.sizes.fp32_result = true;
    gemm("router.forward", 4 * scores, 2 * (dim.local_tokens + dim.experts) * dim.hidden, std::move(call));
    const Slot weights = writer_.make("router.weights", {dim.local_tokens, dim.topk}, DataType::fp32);
    const Slot choice = writer_.make("router.choice", {dim.local_tokens, dim.topk}, DataType::int32);
    writer_.memory_kernel("router.scores", 4 * scores + 3 * 4 * chosen_rows(dim),
                          {Call::router_forward,
                           score_sizes(),
                           {reads(logits), reads(StowageState::assignment), writes(weights), writes(choice)}});
    script.drop(choice);
    logits_ = script.save(logits);
    script.drop(logits);
    return weights;
}

Slot TokenRouter::scores_backward(Slot weights_gradient) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::router);
    const Slot gradient = writer_.make("router.logits_gradient", {dim.local_tokens, dim.experts});
    script.read(logits_);
    writer_.memory_kernel(
        "router.scores_backward", (4 + 2) * dim.local_tokens * dim.experts + 2 * 4 * chosen_rows(dim),
        {Call::router_backward,
         score_sizes(),
         {script.operand(logits_), reads(StowageState::assignment), reads(weights_gradient), writes(gradient)}});
    script.forget(logits_);
    script.drop(weights_gradient);
    return gradient;
}

Slot TokenRouter::input_gradient(Slot logits_gradient) {
    const Dimensions& dim = writer_.dim;
    writer_.script.part(Part::router);
    const Slot result = writer_.make("router.input_gradient", dim.hidden_shape());
    gemm("router.dgrad", 2 * dim.hidden_elements(), 2 * (dim.local_tokens + dim.hidden) * dim.experts,
         {Call::linear_input_gradient,
          gemm_sizes(),
          {reads(logits_gradient), reads(weight_), writes(result), writes(StowageState::workspace)}});
    return result;
}

void TokenRouter::weight_gradient(Slot logits_gradient, CallOperand normed) {
    const Dimensions& dim = writer_.dim;
    writer_.script.part(Part::router);
    writer_.script.phase(Phase::weight_gradient);
    gemm("router.wgrad", 2 * writer_.gradient_bytes() * dim.experts * dim.hidden,
         2 * dim.local_tokens * (dim.experts + dim.hidden),
         {Call::linear_weight_gradient,
          gemm_sizes(),
          {reads(logits_gradient), normed, adds_to(weight_), writes(StowageState::workspace)}});
    writer_.script.phase(Phase::backward);
}

}  // namespace stowage::layers
