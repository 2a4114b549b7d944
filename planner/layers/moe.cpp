#include "planner/layers/moe.hpp"

#include "planner/layers/token_path.hpp"

namespace stowage::layers {
namespace {

constexpr const char* kNormName = "mlp_norm";

Slot norm_forward(Writer& writer, Slot input, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::mlp_norm);
    script.start(Module::mlp_norm);
    const Slot normed = writer.make("mlp_norm.output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, kNormName, dim.local_tokens, dim.hidden);
    moe.norm = save_norm(writer, kNormName, dim.local_tokens, dim.hidden, input, statistics, Module::mlp_norm);
    return normed;
}

/// Logits, the best experts of each token and their weights.
void router_forward(Writer& writer, Slot normed, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::router);
    const Slot logits = writer.make("router.logits", {dim.local_tokens, dim.experts}, DataType::fp32);
    writer.gemm("router.forward", dim.local_tokens, dim.experts, dim.hidden);
    moe.normed = script.save(normed);
    const Slot chosen = writer.make("router.chosen_experts", {dim.local_tokens, dim.topk}, DataType::int64);
    const Slot weights = writer.make("router.probabilities", {dim.local_tokens, dim.experts}, DataType::fp32);
    writer.memory_kernel("router.topk", dim.local_tokens * (2 * 4 * dim.experts + 8 * dim.topk));
    for (Slot slot : {logits, weights, chosen}) {
        moe.routing.push_back(script.save(slot));
        script.drop(slot);
    }
}

/// Orders the token copies by expert and counts them; the host needs the counts to go on.
TokenRows permute(Writer& writer, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::dispatch);
    const Slot indices = writer.make("dispatch.indices", {dim.sent_tokens}, DataType::int64);
    writer.memory_kernel("dispatch.count", dim.local_tokens * dim.experts);
    if (dim.expert > 1)
        writer.collective("dispatch.counts", CollectiveKind::all_gather, CommGroup::expert,
                          8 * dim.experts * dim.expert);
    script.host_sync();
    TokenRows tokens;
    tokens.weighted = true;
    tokens.rows = writer.make("dispatch.permuted", {dim.sent_tokens, dim.hidden});
    tokens.weights = writer.make("dispatch.permuted.weights", {dim.sent_tokens}, DataType::fp32);
    writer.memory_kernel("dispatch.permute", 2 * 2 * dim.sent_tokens * dim.hidden);
    moe.permutation = script.save(indices);
    script.drop(indices);
    return tokens;
}

Slot fc1_forward(Writer& writer, Slot tokens, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::expert_fc1);
    script.start(Module::expert_fc1);
    const Slot output = writer.make("expert_fc1.output", {dim.expert_tokens, dim.expert_fc1_width});
    writer.grouped_gemm("expert_fc1.forward", dim.expert_tokens, dim.expert_fc1_width, dim.hidden, dim.local_experts);
    moe.fc1_input = script.save(tokens, Module::expert_fc1);
    script.commit(Module::expert_fc1, {tokens});
    return output;
}

/// Activation times routing weight. Gated: one fused kernel that saves its input. Otherwise two steps, whose product
/// needs the activation's own output again.
Slot activation_forward(Writer& writer, Slot fc1_output, Slot weights, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Shape shape{dim.expert_tokens, dim.expert_ffn};
    script.part(Part::moe_act);
    script.start(Module::moe_act);
    Slot output = writer.make("moe_act.output", shape);
    writer.memory_kernel("moe_act.forward", 2 * dim.expert_tokens * (dim.expert_fc1_width + dim.expert_ffn));
    moe.fc1_output = script.save(fc1_output, Module::moe_act);
    if (!writer.model.gated()) {
        const Slot unweighted = output;
        output = writer.make("moe_act.weighted", shape);
        writer.memory_kernel("moe_act.weight", 4 * dim.expert_tokens * dim.expert_ffn);
        moe.unweighted = script.save(unweighted);
        script.drop(unweighted);
    }
    moe.weights = script.save(weights, Module::moe_act);
    return output;
}

Slot experts_forward(Writer& writer, TokenRows tokens, Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot fc1_output = fc1_forward(writer, tokens.rows, moe);
    const Slot activated = activation_forward(writer, fc1_output, tokens.weights, moe);
    script.part(Part::expert_fc2);
    const Slot output = writer.make("expert_fc2.output", {dim.expert_tokens, dim.hidden});
    writer.grouped_gemm("expert_fc2.forward", dim.expert_tokens, dim.hidden, dim.expert_ffn, dim.local_experts);
    moe.fc2_input = script.save(activated);
    script.part(Part::moe_act);
    script.commit(Module::moe_act, {fc1_output});
    for (Slot slot : {fc1_output, activated, tokens.rows, tokens.weights}) script.drop(slot);
    return output;
}

/// Sums the copies of each token.
Slot combine(Writer& writer, Slot expert_output) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::combine);
    const TokenRows returned = from_experts(writer, "combine", {expert_output, {}, false});
    const Slot output = writer.make("combine.output", dim.hidden_shape());
    writer.memory_kernel("combine.unpermute", 2 * (dim.sent_tokens * dim.hidden + 2 * dim.hidden_elements()));
    writer.script.drop(returned.rows);
    return output;
}

Slot fc2_backward(Writer& writer, const Moe& moe, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::expert_fc2);
    const Slot result = writer.make("expert_fc2.dgrad", {dim.expert_tokens, dim.expert_ffn});
    writer.grouped_gemm("expert_fc2.dgrad", dim.expert_tokens, dim.expert_ffn, dim.hidden, dim.local_experts);
    script.read(moe.fc2_input);
    writer.grouped_weight_gradient("expert_fc2.wgrad", dim.expert_tokens, dim.hidden, dim.expert_ffn,
                                   dim.local_experts);
    script.forget(moe.fc2_input);
    script.drop(gradient);
    return result;
}

/// Gradients of fc1's output and of the routing weights.
TokenRows activation_backward(Writer& writer, const Moe& moe, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::moe_act);
    TokenRows result;
    result.weighted = true;
    if (moe.unweighted) {
        const Slot unweighted = writer.make("moe_act.unweighted_gradient", {dim.expert_tokens, dim.expert_ffn});
        result.weights = writer.make("moe_act.weights_gradient", {dim.expert_tokens}, DataType::fp32);
        script.read(*moe.unweighted);
        script.read(moe.weights);
        writer.memory_kernel("moe_act.weight_backward", 6 * dim.expert_tokens * dim.expert_ffn);
        script.forget(*moe.unweighted);
        script.drop(gradient);
        gradient = unweighted;
    } else {
        result.weights = writer.make("moe_act.weights_gradient", {dim.expert_tokens}, DataType::fp32);
        script.read(moe.weights);
    }
    result.rows = writer.make("moe_act.input_gradient", {dim.expert_tokens, dim.expert_fc1_width});
    script.read(moe.fc1_output);
    writer.memory_kernel("moe_act.backward", 2 * dim.expert_tokens * (2 * dim.expert_fc1_width + dim.expert_ffn));
    script.forget(moe.fc1_output);
    script.forget(moe.weights);
    script.drop(gradient);
    return result;
}

Slot fc1_backward(Writer& writer, const Moe& moe, Slot gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::expert_fc1);
    const Slot result = writer.make("expert_fc1.dgrad", {dim.expert_tokens, dim.hidden});
    writer.grouped_gemm("expert_fc1.dgrad", dim.expert_tokens, dim.hidden, dim.expert_fc1_width, dim.local_experts);
    script.read(moe.fc1_input);
    writer.grouped_weight_gradient("expert_fc1.wgrad", dim.expert_tokens, dim.expert_fc1_width, dim.hidden,
                                   dim.local_experts);
    script.forget(moe.fc1_input);
    script.drop(gradient);
    return result;
}

Slot combine_backward(Writer& writer) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::combine);
    TokenRows permuted;
    permuted.rows = writer.make("combine.gradient", {dim.sent_tokens, dim.hidden});
    writer.memory_kernel("combine.unpermute_backward", 2 * (dim.sent_tokens * dim.hidden + dim.hidden_elements()));
    return to_experts(writer, "combine_backward", permuted).rows;
}

/// Back through the three steps of the experts, with the two offload groups around them.
TokenRows experts_backward(Writer& writer, const Moe& moe, Slot gradient) {
    ScriptBuilder& script = writer.script;
    script.part(Part::moe_act);
    script.commit(Module::moe_act);
    const Slot activated = fc2_backward(writer, moe, gradient);
    TokenRows tokens = activation_backward(writer, moe, activated);
    script.start(Module::moe_act);
    script.part(Part::expert_fc1);
    script.commit(Module::expert_fc1);
    tokens.rows = fc1_backward(writer, moe, tokens.rows);
    script.start(Module::expert_fc1);
    return tokens;
}

/// Gradient of the normed tokens along the dispatched rows; the gradient of the routing weights is left in `weights`.
TokenRows dispatch_backward(Writer& writer, const Moe& moe, TokenRows tokens) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::dispatch);
    TokenRows permuted = from_experts(writer, "dispatch_backward", tokens);
    const Slot normed = writer.make("dispatch.input_gradient", dim.hidden_shape());
    script.read(moe.permutation);
    writer.memory_kernel("dispatch.permute_backward", 2 * (dim.sent_tokens * dim.hidden + 2 * dim.hidden_elements()));
    script.forget(moe.permutation);
    script.drop(permuted.rows);
    permuted.rows = normed;
    return permuted;
}

/// Adds the router's share to the gradient of the normed tokens.
void router_backward(Writer& writer, const Moe& moe, Slot weights_gradient) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::router);
    const Slot logits = writer.make("router.logits_gradient", {dim.local_tokens, dim.experts}, DataType::fp32);
    for (SavedIndex saved : moe.routing) script.read(saved);
    writer.memory_kernel("router.topk_backward", dim.local_tokens * (3 * 4 * dim.experts + 8 * dim.topk));
    for (SavedIndex saved : moe.routing) script.forget(saved);
    script.drop(weights_gradient);
    const Slot normed = writer.make("router.input_gradient", dim.hidden_shape());
    writer.gemm("router.dgrad", dim.local_tokens, dim.hidden, dim.experts);
    script.read(moe.normed);
    const Slot weight = writer.make("router.weight.gradient", {dim.experts, dim.hidden});
    script.phase(Phase::weight_gradient);
    writer.gemm("router.wgrad", dim.experts, dim.hidden, dim.local_tokens);
    writer.memory_kernel("router.weight.accumulate", dim.experts * dim.hidden * (2 + 4 + 4));
    script.phase(Phase::backward);
    script.drop(weight);
    script.forget(moe.normed);
    script.drop(logits);
    writer.memory_kernel("router.join_gradients", 3 * 2 * dim.hidden_elements());
    script.drop(normed);
}

}  // namespace

Moe moe_forward(Writer& writer, Slot input) {
    Moe moe;
    const Slot normed = norm_forward(writer, input, moe);
    router_forward(writer, normed, moe);
    const TokenRows tokens = to_experts(writer, "dispatch", permute(writer, moe));
    moe.output = combine(writer, experts_forward(writer, tokens, moe));
    writer.script.drop(normed);
    return moe;
}

void moe_backward(Writer& writer, const Moe& moe, Slot grad_input) {
    const TokenRows tokens = experts_backward(writer, moe, combine_backward(writer));
    const TokenRows normed = dispatch_backward(writer, moe, tokens);
    router_backward(writer, moe, normed.weights);
    writer.script.part(Part::mlp_norm);
    writer.script.allocate(grad_input);
    norm_backward(writer, moe.norm);
    writer.script.drop(normed.rows);
}

void moe_parameters(Writer& writer) {
    const Dimensions& dim = writer.dim;
    writer.norm_parameters(kNormName, dim.hidden);
    writer.replicated_parameter("router.weight", {dim.experts, dim.hidden});
    const std::int64_t copies = dim.expert * dim.expert_tensor;  // ranks that hold other experts or other shards
    const auto declare = [&](std::string name, Shape shape) {
        const std::int64_t elements = shape[0] * shape[1];
        writer.script.parameter({std::move(name), std::move(shape), ParameterKind::expert, elements * copies});
    };
    for (std::int64_t expert = 0; expert < dim.local_experts; ++expert)
        declare("expert_fc1.weight" + std::to_string(expert), {dim.expert_fc1_width, dim.hidden});
    for (std::int64_t expert = 0; expert < dim.local_experts; ++expert)
        declare("expert_fc2.weight" + std::to_string(expert), {dim.hidden, dim.expert_ffn});
}

}  // namespace stowage::layers
