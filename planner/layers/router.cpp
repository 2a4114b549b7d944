#include "planner/layers/router.hpp"

namespace stowage::layers {

Router router_forward(Writer& writer, Slot normed) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::router);
    Router router;
    const Slot logits = writer.make("router.logits", {dim.local_tokens, dim.experts}, DataType::fp32);
    writer.gemm("router.forward", dim.local_tokens, dim.experts, dim.hidden);
    router.normed = script.save(normed);
    const Slot chosen = writer.make("router.chosen_experts", {dim.local_tokens, dim.topk}, DataType::int64);
    const Slot weights = writer.make("router.probabilities", {dim.local_tokens, dim.experts}, DataType::fp32);
    writer.memory_kernel("router.topk", dim.local_tokens * (2 * 4 * dim.experts + 8 * dim.topk));
    if (dim.capacity > 0) writer.memory_kernel("router.capacity", dim.local_tokens * dim.experts * (2 * 4 + 1));
    for (Slot slot : {logits, weights, chosen}) {
        router.routing.push_back(script.save(slot));
        script.drop(slot);
    }
    return router;
}

void router_backward(Writer& writer, const Router& router, Slot weights_gradient, GradientSum& sum) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::router);
    const Slot logits = writer.make("router.logits_gradient", {dim.local_tokens, dim.experts}, DataType::fp32);
    for (SavedIndex saved : router.routing) script.read(saved);
    writer.memory_kernel("router.topk_backward", dim.local_tokens * (3 * 4 * dim.experts + 8 * dim.topk));
    for (SavedIndex saved : router.routing) script.forget(saved);
    script.drop(weights_gradient);
    const Slot normed = writer.make("router.input_gradient", dim.hidden_shape());
    writer.gemm("router.dgrad", dim.local_tokens, dim.hidden, dim.experts);
    script.read(router.normed);
    const Slot weight = writer.make("router.weight.gradient", {dim.experts, dim.hidden});
    script.phase(Phase::weight_gradient);
    writer.gemm("router.wgrad", dim.experts, dim.hidden, dim.local_tokens);
    writer.memory_kernel("router.weight.accumulate", dim.experts * dim.hidden * (2 + 4 + 4));
    script.phase(Phase::backward);
    script.drop(weight);
    if (writer.model.add_bias_linear) {
        writer.memory_kernel("router.bias_gradient", 4 * dim.local_tokens * dim.experts);
        writer.accumulate_small_gradient("router.bias", {dim.experts});
    }
    script.forget(router.normed);
    script.drop(logits);
    sum.add(writer, "router", normed);
}

void router_parameters(Writer& writer) {
    writer.replicated_parameter("router.weight", {writer.dim.experts, writer.dim.hidden});
    if (writer.model.add_bias_linear) writer.replicated_parameter("router.bias", {writer.dim.experts});
}

}  // namespace stowage::layers
