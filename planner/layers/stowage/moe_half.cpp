#include "planner/layers/stowage/moe_half.hpp"

namespace stowage::layers {

namespace {

/// A graph that ends between router and dispatch hands the norm's output on, so that it stays and is not made again.
bool norm_leaves_a_graph(const types::CudaGraph& graph) {
    using types::CudaGraphImpl;
    const bool by_layer =
        graph.cuda_graph_impl == CudaGraphImpl::transformer_engine || graph.cuda_graph_impl == CudaGraphImpl::local;
    return by_layer && graph.lists(types::CudaGraphModule::moe_router) &&
           !graph.lists(types::CudaGraphModule::moe_preprocess);
}

bool recomputes_norm(const StowageWriter& writer) {
    if (writer.recomputes(types::RecomputeModule::moe)) return true;
    return writer.recomputes(types::RecomputeModule::layernorm) && !norm_leaves_a_graph(writer.scenario.cuda_graph);
}

}  // namespace

MoeHalf::MoeHalf(StowageWriter& writer)
    : writer_(writer),
      again_(writer.recomputes(types::RecomputeModule::moe)),
      norm_(writer.norm("mlp_norm")),
      norm_saves_(writer, norm_, recomputes_norm(writer)),
      router_(writer),
      experts_(writer),
      places_(writer.script.tensor("dispatch.places", {writer.dim.local_tokens, writer.dim.topk}, DataType::int32)),
      sources_(writer.script.tensor("dispatch.sources", {chosen_rows(writer.dim)}, DataType::int32)) {
    if (writer.dim.shared_ffn > 0) shared_.emplace(writer);
}

CallSizes MoeHalf::route_sizes() const {
    CallSizes sizes = row_sizes(writer_, writer_.dim.local_tokens, writer_.dim.routed_width);
    sizes.experts = writer_.dim.experts;
    sizes.topk = writer_.dim.topk;
    return sizes;
}

// ------------------------------------------------------------------------------------------------------------ forward

void MoeHalf::find_places(Run run) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.allocate(places_);
    script.allocate(sources_);
    const Slot counts = writer_.make("dispatch.counts", {dim.experts}, DataType::int32);
    writer_.memory_kernel("dispatch.places", 3 * 4 * chosen_rows(dim) + 4 * dim.experts,
                          {Call::route_rows,
                           route_sizes(),
                           {reads(StowageState::assignment), writes(places_), writes(sources_), writes(counts)}});
    if (dim.capacity == 0 && run == Run::first) {
        KernelCall call{Call::counts_to_host, route_sizes(), {reads(counts)}};
        call.sizes.depth = planned_expert_rows(dim);
        writer_.memory_kernel("dispatch.counts", 4 * dim.experts, std::move(call));
    }
    script.drop(counts);
}

/// Returns the rows of this rank's experts; drops `weights`, and the norm's output where nobody else reads it.
ExpertRows MoeHalf::dispatch(Slot weights, Run run) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::dispatch);
    find_places(run);
    const ExpertRows permuted = make_expert_rows(writer_, "dispatch.permuted", chosen_rows(dim), true);
    writer_.memory_kernel(
        "dispatch.permute", chosen_rows(dim) * (2 * 2 * dim.routed_width + 3 * 4),
        {Call::permute_forward,
         route_sizes(),
         {reads(norm_.output), reads(weights), reads(sources_), writes(permuted.rows), writes(*permuted.weights)}});
    if (run == Run::first) script.drop(norm_.output);
    script.drop(weights);
    saved_sources_ = script.save(sources_);
    saved_places_ = script.save(places_);
    script.drop(sources_);
    script.edge(GraphEdge::preprocess);
    if (dim.capacity == 0 && run == Run::first) script.host_sync();
    return rows_to_experts(writer_, "dispatch", permuted);
}

/// Drops `rows`.
void MoeHalf::combine(Slot rows, Slot addend) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::combine);
    const ExpertRows returned = rows_from_experts(writer_, "combine", {rows, {}});
    script.allocate(kOutput);
    KernelCall call{
        Call::unpermute_forward, route_sizes(), {reads(returned.rows), reads(places_), reads(addend), writes(kOutput)}};
    call.sizes.has_addend = true;
    writer_.memory_kernel("combine.unpermute",
                          2 * (chosen_rows(dim) * dim.routed_width + 2 * dim.hidden_elements()) + 4 * chosen_rows(dim),
                          std::move(call));
    drop_expert_rows(writer_, returned);
    script.drop(places_);
}

void MoeHalf::forward(Slot input) {
    ScriptBuilder& script = writer_.script;
    script.part(Part::mlp_norm);
    script.start(Module::mlp_norm);
    norm_saves_.forward(input, Module::mlp_norm);
    script.commit(Module::mlp_norm);
    norm_saves_.save_output(std::nullopt);
    const SavingScope scope(script, again_ ? Saving::nothing : Saving::autograd);
    std::optional<Slot> shared;
    if (shared_) shared = shared_->forward(reads(norm_.output), reads(input));
    const Slot weights = router_.forward(reads(norm_.output));
    script.edge(GraphEdge::router);
    const ExpertRows rows = dispatch(weights, Run::first);
    combine(experts_.forward(rows), shared.value_or(input));
    if (shared) script.drop(*shared);
}

// ----------------------------------------------------------------------------------------------------------- backward

/// Returns the gradient of the experts' output.
Slot MoeHalf::combine_backward() {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::combine);
    const ExpertRows permuted = make_expert_rows(writer_, "combine.gradient", chosen_rows(dim), false);
    script.read(saved_sources_);
    writer_.memory_kernel("combine.unpermute_backward",
                          2 * (chosen_rows(dim) * dim.routed_width + dim.hidden_elements()) + 4 * chosen_rows(dim),
                          {Call::unpermute_backward,
                           route_sizes(),
                           {reads(kGradOutput), script.operand(saved_sources_), writes(permuted.rows)}});
    script.forget(saved_sources_);
    return rows_to_experts(writer_, "combine_backward", permuted).rows;
}

/// Drops `rows`.
ExpertRows MoeHalf::dispatch_backward(const ExpertRows& rows) {
    ScriptBuilder& script = writer_.script;
    const Dimensions& dim = writer_.dim;
    script.part(Part::dispatch);
    const ExpertRows permuted = rows_from_experts(writer_, "dispatch_backward", rows);
    script.edge(GraphEdge::preprocess);
    ExpertRows result;
    result.rows = writer_.make("dispatch.input_gradient", dim.hidden_shape());
    result.weights = writer_.make("router.weights_gradient", {dim.local_tokens, dim.topk}, DataType::fp32);
    script.read(saved_places_);
    writer_.memory_kernel("dispatch.permute_backward",
                          2 * (chosen_rows(dim) * dim.routed_width + dim.hidden_elements()) + 3 * 4 * chosen_rows(dim),
                          {Call::permute_backward,
                           route_sizes(),
                           {reads(permuted.rows), reads(*permuted.weights), script.operand(saved_places_),
                            writes(result.rows), writes(*result.weights)}});
    script.forget(saved_places_);
    drop_expert_rows(writer_, permuted);
    return result;
}

/// Drops `other`.
void MoeHalf::add_to(Slot sum, Slot other) {
    writer_.memory_kernel(
        "mlp_norm.add_gradients", 3 * 2 * writer_.dim.hidden_elements(),
        {Call::add, row_sizes(writer_, writer_.dim.local_tokens, writer_.dim.hidden), {updates(sum), reads(other)}});
    writer_.script.drop(other);
}

Slot MoeHalf::normed_gradient(const ExpertRows& routed) {
    ScriptBuilder& script = writer_.script;
    script.edge(GraphEdge::router);
    const Slot logits = router_.scores_backward(*routed.weights);
    const Slot sum = router_.input_gradient(logits);  // made on this side of the edge: a graph may add to it
    add_to(sum, routed.rows);
    if (norm_saves_.again() && !again_) norm_again();
    const CallOperand normed = norm_saves_.output();
    router_.weight_gradient(logits, normed);
    script.drop(logits);
    if (shared_) add_to(sum, shared_->backward(reads(kGradOutput), normed));
    norm_saves_.forget_output();
    return sum;
}

void MoeHalf::norm_again() {
    writer_.script.part(Part::mlp_norm);
    writer_.script.commit(Module::mlp_norm);
    norm_saves_.remake();
}

/// From the norm's output on, which is there.
void MoeHalf::forward_again() {
    ScriptBuilder& script = writer_.script;
    script.phase(Phase::recompute);
    experts_.forward_again(dispatch(router_.forward(reads(norm_.output)), Run::again));
    script.drop(places_);
    script.phase(Phase::backward);
}

Slot MoeHalf::body_backward() {
    if (!again_) return normed_gradient(dispatch_backward(experts_.backward(combine_backward())));
    norm_again();
    const SavingScope scope(writer_.script, Saving::rebuild);
    forward_again();
    return normed_gradient(dispatch_backward(experts_.backward(combine_backward())));
}

void MoeHalf::backward(Slot grad_input) {
    ScriptBuilder& script = writer_.script;
    const Slot gradient = body_backward();
    script.part(Part::mlp_norm);
    if (!norm_saves_.again()) script.commit(Module::mlp_norm);
    norm_saves_.backward({gradient, kGradOutput, grad_input});
    script.drop(gradient);
    script.drop(kGradOutput);
    script.start(Module::mlp_norm);
}

}  // namespace stowage::layers
