#include "planner/layers/moe.hpp"

namespace stowage::layers {
namespace {

using types::RecomputeModule;

constexpr const char* kNormName = "mlp_norm";

bool overlaps_shared(const Writer& writer) { return writer.scenario.parallel.moe_shared_expert_overlap; }
// ------------------------------------------------------------------------------------------------------------- shared

SharedPath shared_forward(Writer& writer, Slot normed) {
    ScriptBuilder& script = writer.script;
    SharedPath path;
    std::optional<SavingScope> checkpoint;
    script.part(Part::shared_expert);
    if (writer.recomputes(RecomputeModule::shared_experts)) {
        path.checkpoint = script.save(normed);
        checkpoint.emplace(script, Saving::nothing);
    }
    path.expert = shared_expert_begin(writer, normed);
    shared_expert_finish(writer, path.expert);
    return path;
}

void shared_gradients(Writer& writer, const SharedExpert& expert, GradientSum& sum) {
    const Slot activated = shared_expert_finish_backward(writer, expert, sum);
    shared_expert_begin_backward(writer, expert, activated, sum);
}

void shared_backward(Writer& writer, const SharedPath& path, Slot normed, GradientSum& sum) {
    ScriptBuilder& script = writer.script;
    if (!path.checkpoint) return shared_gradients(writer, path.expert, sum);
    script.part(Part::shared_expert);
    script.read(*path.checkpoint);
    GradientSum own;
    {
        const SavingScope rebuild(script, Saving::rebuild);
        script.phase(Phase::recompute);
        SharedExpert second = shared_expert_begin(writer, normed);
        shared_expert_finish(writer, second);
        script.phase(Phase::backward);
        shared_gradients(writer, second, own);
        script.drop(second.output);
    }
    script.forget(*path.checkpoint);
    sum.add(writer, "shared_expert.checkpoint", own.take());
}

// --------------------------------------------------------------------------------------------------------------- body

Slot add_shared(Writer& writer, Slot routed, const MoeBody& body) {
    if (!body.shared) return routed;
    const Slot shared = body.shared->expert.output;
    writer.script.part(Part::shared_expert);
    const Slot sum = writer.make("shared_expert.sum", writer.dim.hidden_shape());
    writer.memory_kernel("shared_expert.add", 3 * 2 * writer.dim.hidden_elements());
    writer.script.drop(routed);
    writer.script.drop(shared);
    return sum;
}

MoeBody body_forward(Writer& writer, Slot normed) {
    MoeBody body;
    std::function<void()> beside_dispatch;
    std::function<void()> beside_combine;
    if (writer.dim.shared_ffn > 0 && overlaps_shared(writer)) {
        body.shared.emplace();
        beside_dispatch = [&] { body.shared->expert = shared_expert_begin(writer, normed); };
        beside_combine = [&] { shared_expert_finish(writer, body.shared->expert); };
    } else if (writer.dim.shared_ffn > 0) {
        body.shared = shared_forward(writer, normed);
    }
    body.router = router_forward(writer, normed);
    writer.script.edge(GraphEdge::router);
    if (has_latent(writer)) body.to_latent = latent_down_forward(writer, normed);
    body.dispatch = dispatch_forward(writer, beside_dispatch);
    if (body.to_latent) writer.script.drop(body.to_latent->output);
    body.experts = experts_forward(writer, body.dispatch.tokens);
    body.combine = combine_forward(writer, body.experts.output, beside_combine);
    body.output = body.combine.output;
    if (has_latent(writer)) {
        body.from_latent = latent_up_forward(writer, body.output);
        body.output = body.from_latent->output;
    }
    body.output = add_shared(writer, body.output, body);
    return body;
}

/// Gradient of the normed tokens through everything after them.
Slot body_backward(Writer& writer, const MoeBody& body, Slot normed) {
    GradientSum sum;
    std::optional<Slot> activated;
    std::function<void()> beside_combine;
    std::function<void()> beside_dispatch;
    const bool overlapped = body.shared && overlaps_shared(writer);
    if (overlapped) {
        beside_combine = [&] { activated = shared_expert_finish_backward(writer, body.shared->expert, sum); };
        beside_dispatch = [&] { shared_expert_begin_backward(writer, body.shared->expert, *activated, sum); };
    }
    std::optional<Slot> latent;
    if (body.from_latent) latent = latent_up_backward(writer, *body.from_latent);
    const Slot rows = combine_backward(writer, body.combine, beside_combine);
    if (latent) writer.script.drop(*latent);
    const TokenRows tokens = experts_backward(writer, body.experts, rows);
    TokenRows routed = dispatch_backward(writer, body.dispatch, tokens, beside_dispatch);
    if (body.to_latent) routed.rows = latent_down_backward(writer, *body.to_latent, routed.rows);
    sum.add(writer, "dispatch", routed.rows);
    writer.script.edge(GraphEdge::router);
    router_backward(writer, body.router, routed.weights, sum);
    if (body.shared && !overlapped) shared_backward(writer, *body.shared, normed, sum);
    return sum.take();
}

/// The checkpoint's backward: the forward again, then back through it.
Slot checkpointed_backward(Writer& writer, const Moe& moe) {
    ScriptBuilder& script = writer.script;
    script.part(Part::router);
    script.read(*moe.checkpoint);
    Slot gradient{};
    {
        const SavingScope rebuild(script, Saving::rebuild);
        script.phase(Phase::recompute);
        const MoeBody second = body_forward(writer, moe.normed);
        script.phase(Phase::backward);
        gradient = body_backward(writer, second, moe.normed);
        script.drop(second.output);
    }
    script.forget(*moe.checkpoint);
    return gradient;
}

// --------------------------------------------------------------------------------------------------------------- norm

/// Under Transformer Engine's graphs with moe_router the norm would be rebuilt where its output is the graph's, unless
/// the graph goes on to the token permutation and nothing else reads the norm (Megatron switches it off with a
/// warning).
bool norm_is_a_graph_output(const Writer& writer) {
    const types::CudaGraph& graph = writer.scenario.cuda_graph;
    if (graph.cuda_graph_impl != types::CudaGraphImpl::transformer_engine) return false;
    if (!graph.lists(types::CudaGraphModule::moe_router)) return false;
    const bool alltoall = writer.scenario.parallel.moe_token_dispatcher_type == types::TokenDispatcher::alltoall;
    return !graph.lists(types::CudaGraphModule::moe_preprocess) || !(alltoall || has_latent(writer)) ||
           overlaps_shared(writer);
}

bool recomputes_norm(const Writer& writer) {
    return writer.recomputes(RecomputeModule::layernorm) && !norm_is_a_graph_output(writer);
}

SavedNorm run_and_save_norm(Writer& writer, Slot input, Slot& normed) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::mlp_norm);
    normed = writer.make("mlp_norm.output", dim.hidden_shape());
    const NormStatistics statistics = run_norm(writer, kNormName, dim.local_tokens, dim.hidden);
    return save_norm(writer, kNormName, dim.local_tokens, dim.hidden, input, statistics, Module::mlp_norm);
}

void norm_forward(Writer& writer, Moe& moe) {
    ScriptBuilder& script = writer.script;
    script.part(Part::mlp_norm);
    script.start(Module::mlp_norm);
    if (!recomputes_norm(writer)) {
        moe.norm = run_and_save_norm(writer, moe.input, moe.normed);
        return;
    }
    moe.norm_input = script.save(moe.input, Module::mlp_norm);
    const SavingScope checkpoint(script, Saving::nothing);
    run_and_save_norm(writer, moe.input, moe.normed);
    script.discards(moe.normed);
}

/// What the norm's second forward made.
struct SecondNorm {
    SavedNorm norm;
    Slot output{};    ///< held by the checkpoint until its backward
    Slot restored{};  ///< the storage that the consumers saved
};

SecondNorm rebuild_norm(Writer& writer, const Moe& moe) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::mlp_norm);
    script.read(moe.norm_input);
    const SavingScope rebuild(script, Saving::rebuild);
    script.phase(Phase::recompute);
    SecondNorm second;
    second.norm = run_and_save_norm(writer, moe.input, second.output);
    second.restored = writer.make("mlp_norm.restored", dim.hidden_shape());
    writer.memory_kernel("mlp_norm.restore", 2 * 2 * dim.hidden_elements());
    script.phase(Phase::backward);
    return second;
}

}  // namespace

Moe moe_forward(Writer& writer, Slot input) {
    ScriptBuilder& script = writer.script;
    Moe moe;
    moe.input = input;
    norm_forward(writer, moe);
    {
        std::optional<SavingScope> checkpoint;
        script.part(Part::router);
        if (writer.recomputes(RecomputeModule::moe)) {
            moe.checkpoint = script.save(moe.normed);
            checkpoint.emplace(script, Saving::nothing);
        }
        moe.body = body_forward(writer, moe.normed);
    }
    moe.output = moe.body.output;
    script.drop(moe.normed);
    return moe;
}

void moe_backward(Writer& writer, const Moe& moe, Slot grad_input) {
    ScriptBuilder& script = writer.script;
    std::optional<SecondNorm> second;
    if (!moe.norm) second = rebuild_norm(writer, moe);
    const Slot normed =
        moe.checkpoint ? checkpointed_backward(writer, moe) : body_backward(writer, moe.body, moe.normed);
    script.part(Part::mlp_norm);
    if (second) script.drop(second->restored);
    script.allocate(grad_input);
    norm_backward(writer, moe.norm ? *moe.norm : second->norm);
    script.drop(normed);
    if (!second) return;
    script.drop(second->output);
    script.forget(moe.norm_input);
}

void moe_parameters(Writer& writer) {
    writer.norm_parameters(kNormName, writer.dim.hidden);
    router_parameters(writer);
    latent_parameters(writer);
    experts_parameters(writer);
    shared_expert_parameters(writer);
}

}  // namespace stowage::layers
