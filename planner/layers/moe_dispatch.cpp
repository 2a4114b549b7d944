#include "planner/layers/moe_dispatch.hpp"

#include <algorithm>

namespace stowage::layers {
namespace {

using types::TokenDispatcher;

std::int64_t group_size(const Dimensions& dim) { return dim.expert * dim.expert_tensor; }
std::int64_t group_tokens(const Dimensions& dim) { return dim.local_tokens * group_size(dim); }
std::int64_t routed_elements(const Dimensions& dim) { return dim.local_tokens * dim.routed_width; }

Shape routed_shape(const Dimensions& dim) {
    return {dim.local_tokens / dim.micro_batch, dim.micro_batch, dim.routed_width};
}

TokenDispatcher kind_of(const Writer& writer) { return writer.scenario.parallel.moe_token_dispatcher_type; }

/// A collective over the expert and the expert tensor ranks together.
void group_collective(Writer& writer, const std::string& name, CollectiveKind kind, std::int64_t bytes) {
    if (group_size(writer.dim) > 1) writer.collective(name, kind, CommGroup::expert_and_tensor, bytes);
}

// ----------------------------------------------------------------------------------------------------------- alltoall

/// Picks the weights of the token copies out of the probabilities turned expert by expert: by a mask, whose backward
/// needs both of them, or, padded, by places.
void select_weights(Writer& writer, Dispatch& dispatch) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Shape turned{dim.experts, dim.local_tokens};
    const bool padded = writer.model.drop_and_pad();
    const Slot weights = writer.make("dispatch.turned_probabilities", turned, DataType::fp32);
    writer.memory_kernel("dispatch.turn_probabilities", 2 * 4 * dim.local_tokens * dim.experts);
    const Slot chosen = padded ? writer.make("dispatch.weight_places", {dim.sent_tokens}, DataType::int64)
                               : writer.make("dispatch.turned_map", turned, DataType::boolean);
    writer.memory_kernel("dispatch.select_weights", 5 * dim.local_tokens * dim.experts + 4 * dim.sent_tokens);
    if (!padded) dispatch.saved.push_back(script.save(weights));
    dispatch.saved.push_back(script.save(chosen));
    script.drop(weights);
    script.drop(chosen);
}

/// A capacity decides how many copies are left, so the host waits before it can size what is permuted; without one it
/// waits for the counts only to size what it receives.
bool counts_before_permutation(const Writer& writer) {
    return writer.model.moe_expert_capacity_factor.has_value() && !writer.model.drop_and_pad();
}

/// What the host has to know of the routing: rows for each of its experts from every rank, rows to and from each rank.
Bytes counts(const Writer& writer) {
    const std::int64_t ranks = group_size(writer.dim);
    return Bytes{8 * (writer.dim.local_experts * ranks + 2 * ranks)};
}

/// Orders the token copies by expert and counts them.
TokenRows permute(Writer& writer, Dispatch& dispatch) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Slot indices = writer.make("dispatch.indices", {dim.sent_tokens}, DataType::int64);
    writer.memory_kernel("dispatch.count", dim.local_tokens * dim.experts);
    if (!writer.model.drop_and_pad())
        group_collective(writer, "dispatch.counts", CollectiveKind::all_gather, 8 * dim.experts * group_size(dim));
    if (counts_before_permutation(writer)) script.host_sync(counts(writer));
    const TokenRows tokens = make_rows(writer, "dispatch.permuted", dim.sent_tokens, true);
    writer.memory_kernel("dispatch.permute", 2 * 2 * dim.sent_tokens * dim.routed_width);
    dispatch.saved.push_back(script.save(indices));
    script.drop(indices);
    select_weights(writer, dispatch);
    return tokens;
}

// ---------------------------------------------------------------------------------------------------------- allgather

/// Its experts' columns of the gathered map and probabilities.
struct LocalRouting {
    Slot map{};
    Slot probabilities{};
};

LocalRouting gather_routing(Writer& writer) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t tokens = group_tokens(dim);
    const Slot map = writer.make("dispatch.group_map", {tokens, dim.experts}, DataType::boolean);
    group_collective(writer, "dispatch.gather_map", CollectiveKind::all_gather, tokens * dim.experts);
    const Slot probabilities = writer.make("dispatch.group_probabilities", {tokens, dim.experts}, DataType::fp32);
    group_collective(writer, "dispatch.gather_probabilities", CollectiveKind::all_gather, 4 * tokens * dim.experts);
    group_collective(writer, "dispatch.gather", CollectiveKind::all_gather, 2 * tokens * dim.routed_width);
    LocalRouting local;
    local.map = writer.make("dispatch.local_map", {dim.local_experts, tokens}, DataType::boolean);
    local.probabilities = writer.make("dispatch.local_probabilities", {dim.local_experts, tokens}, DataType::fp32);
    writer.memory_kernel("dispatch.pick_experts", 2 * 5 * tokens * dim.local_experts);
    script.drop(map);
    script.drop(probabilities);
    return local;
}

Dispatch gathered_forward(Writer& writer) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    Dispatch dispatch;
    const LocalRouting local = gather_routing(writer);
    writer.memory_kernel("dispatch.count", group_tokens(dim) * dim.local_experts);
    script.host_sync(counts(writer));
    const Slot indices = writer.make("dispatch.indices", {dim.expert_tokens}, DataType::int64);
    dispatch.tokens = make_rows(writer, "dispatch.permuted", dim.expert_tokens, true);
    writer.memory_kernel("dispatch.permute", 2 * 2 * dim.expert_tokens * dim.routed_width);
    for (Slot slot : {indices, local.map, local.probabilities}) {
        dispatch.saved.push_back(script.save(slot));
        script.drop(slot);
    }
    return dispatch;
}

/// All rows of the group, of which each rank gets its sum: through fp32 in combine, as they are in dispatch's backward.
Slot scatter_group(Writer& writer, const std::string& name, Slot total, bool widened) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    if (group_size(dim) == 1) return total;
    const Shape all{group_tokens(dim), dim.routed_width};
    const std::int64_t elements = all[0] * all[1];
    if (!widened) {
        const Slot own = writer.make(name + ".scattered", routed_shape(dim));
        group_collective(writer, name + ".scatter", CollectiveKind::reduce_scatter, 2 * elements);
        script.drop(total);
        return own;
    }
    const Slot wide = writer.make(name + ".fp32", all, DataType::fp32);
    writer.memory_kernel(name + ".widen", 6 * elements);
    script.drop(total);
    const Slot own = writer.make(name + ".scattered_fp32", routed_shape(dim), DataType::fp32);
    group_collective(writer, name + ".scatter", CollectiveKind::reduce_scatter, 4 * elements);
    script.drop(wide);
    const Slot rounded = writer.make(name + ".scattered", routed_shape(dim));
    writer.memory_kernel(name + ".round", 6 * routed_elements(dim));
    script.drop(own);
    return rounded;
}

std::optional<SavedIndex> save_summed(Writer& writer, Slot rows) {
    const types::Model& model = writer.model;
    if (!model.deterministic_mode || model.moe_permute_fusion) return std::nullopt;
    return writer.script.save(rows);
}

/// The backward of the sum is done.
void forget_summed(Writer& writer, const Combine& combine) {
    if (!combine.rows) return;
    writer.script.read(*combine.rows);
    writer.script.forget(*combine.rows);
}

Combine gathered_combine(Writer& writer, Slot expert_output) {
    const Dimensions& dim = writer.dim;
    Combine combine;
    combine.rows = save_summed(writer, expert_output);
    const std::int64_t elements = group_tokens(dim) * dim.routed_width;
    const Slot total = writer.make("combine.group_output", {group_tokens(dim), dim.routed_width});
    writer.memory_kernel("combine.unpermute", 2 * (dim.expert_tokens * dim.routed_width + 2 * elements));
    writer.script.drop(expert_output);
    combine.output = scatter_group(writer, "combine", total, true);
    return combine;
}

Slot gathered_combine_backward(Writer& writer, const Combine& combine) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const Shape all{group_tokens(dim), dim.routed_width};
    const std::int64_t elements = all[0] * all[1];
    std::optional<Slot> total;
    if (group_size(dim) > 1) {
        const Slot own = writer.make("combine_backward.fp32", routed_shape(dim), DataType::fp32);
        writer.memory_kernel("combine_backward.widen", 6 * routed_elements(dim));
        const Slot wide = writer.make("combine_backward.gathered_fp32", all, DataType::fp32);
        group_collective(writer, "combine_backward.gather", CollectiveKind::all_gather, 4 * elements);
        script.drop(own);
        total = writer.make("combine_backward.gathered", all);
        writer.memory_kernel("combine_backward.round", 6 * elements);
        script.drop(wide);
    }
    const Slot rows = writer.make("combine.gradient", {dim.expert_tokens, dim.routed_width});
    writer.memory_kernel("combine.unpermute_backward", 4 * dim.expert_tokens * dim.routed_width);
    forget_summed(writer, combine);
    if (total) script.drop(*total);
    return rows;
}

/// The probabilities' gradient goes back through the selection, the columns and the gather.
Slot routing_gradient(Writer& writer, Slot weights) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t tokens = group_tokens(dim);
    const Slot local =
        writer.make("dispatch.local_probabilities.gradient", {dim.local_experts, tokens}, DataType::fp32);
    writer.memory_kernel("dispatch.select_backward", 2 * 4 * tokens * dim.local_experts);
    script.drop(weights);
    const Slot all = writer.make("dispatch.group_probabilities.gradient", {tokens, dim.experts}, DataType::fp32);
    writer.memory_kernel("dispatch.pick_backward", 4 * tokens * (dim.local_experts + dim.experts));
    script.drop(local);
    if (group_size(dim) == 1) return all;
    const Slot own = writer.make("dispatch.probabilities.gradient", {dim.local_tokens, dim.experts}, DataType::fp32);
    group_collective(writer, "dispatch.scatter_probabilities", CollectiveKind::reduce_scatter,
                     4 * tokens * dim.experts);
    script.drop(all);
    return own;
}

TokenRows gathered_backward(Writer& writer, const Dispatch& dispatch, TokenRows tokens) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t elements = group_tokens(dim) * dim.routed_width;
    const Slot total = writer.make("dispatch.group_gradient", {group_tokens(dim), dim.routed_width});
    for (SavedIndex saved : dispatch.saved) script.read(saved);
    writer.memory_kernel("dispatch.permute_backward", 2 * (dim.expert_tokens * dim.routed_width + 2 * elements));
    script.drop(tokens.rows);
    TokenRows result;
    result.weighted = true;
    result.rows = scatter_group(writer, "dispatch_backward", total, false);
    result.weights = routing_gradient(writer, tokens.weights);
    for (SavedIndex saved : dispatch.saved) script.forget(saved);
    return result;
}

// --------------------------------------------------------------------------------------------------------------- flex

/// Rows that cross: one copy for each chosen expert and expert tensor rank.
std::int64_t fused_rows(const Dimensions& dim) {
    return std::max(dim.sent_tokens, dim.received_tokens) * dim.expert_tensor;
}

/// Expert tensor ranks are places of their own.
void fused_exchange(Writer& writer, const std::string& name, std::int64_t bytes) {
    const Dimensions& dim = writer.dim;
    if (group_size(dim) == 1) return;
    writer.script.collective({.name = name + ".fused",
                              .kind = CollectiveKind::all_to_all,
                              .group = CommGroup::expert_and_tensor,
                              .bytes = Bytes{bytes},
                              .copies = dim.topk * dim.expert_tensor,
                              .places = dim.experts * dim.expert_tensor});
}

TokenRows fused_to_experts(Writer& writer, const std::string& name, bool weighted) {
    const TokenRows tokens = make_rows(writer, name + ".received", writer.dim.expert_tokens, weighted);
    const std::int64_t bytes = fused_rows(writer.dim) * (2 * writer.dim.routed_width + (weighted ? 4 : 0));
    fused_exchange(writer, name, bytes);
    return tokens;
}

TokenRows fused_from_experts(Writer& writer, const std::string& name, TokenRows tokens) {
    const Dimensions& dim = writer.dim;
    TokenRows own;
    own.weighted = tokens.weighted;
    own.rows = writer.make(name + ".output", routed_shape(dim));
    if (own.weighted)
        own.weights = writer.make(name + ".output.weights", {dim.local_tokens, dim.experts}, DataType::fp32);
    const std::int64_t bytes = fused_rows(dim) * (2 * dim.routed_width + (own.weighted ? 4 : 0));
    fused_exchange(writer, name, bytes);
    drop_rows(writer, tokens);
    return own;
}

Dispatch fused_forward(Writer& writer) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    const std::int64_t tokens = group_tokens(dim);
    Dispatch dispatch;
    const Slot map = writer.make("dispatch.group_map", {tokens, dim.experts}, DataType::boolean);
    group_collective(writer, "dispatch.gather_map", CollectiveKind::all_gather, tokens * dim.experts);
    const Slot local = writer.make("dispatch.local_map", {tokens, dim.local_experts}, DataType::boolean);
    const Slot places = writer.make("dispatch.places", {tokens}, DataType::int32);
    writer.memory_kernel("dispatch.metadata", tokens * (dim.experts + dim.local_experts + 4));
    script.drop(map);
    script.host_sync(counts(writer));
    dispatch.tokens = fused_to_experts(writer, "dispatch", true);
    for (Slot slot : {local, places}) {
        dispatch.saved.push_back(script.save(slot));
        script.drop(slot);
    }
    return dispatch;
}

TokenRows fused_backward(Writer& writer, const Dispatch& dispatch, TokenRows tokens) {
    for (SavedIndex saved : dispatch.saved) writer.script.read(saved);
    const TokenRows own = fused_from_experts(writer, "dispatch_backward", tokens);
    for (SavedIndex saved : dispatch.saved) writer.script.forget(saved);
    return own;
}

}  // namespace

Dispatch dispatch_forward(Writer& writer, const std::function<void()>& beside) {
    writer.script.part(Part::dispatch);
    if (kind_of(writer) != TokenDispatcher::alltoall) writer.script.edge(GraphEdge::preprocess);
    if (kind_of(writer) == TokenDispatcher::allgather) return gathered_forward(writer);
    if (kind_of(writer) == TokenDispatcher::flex) return fused_forward(writer);
    Dispatch dispatch;
    const TokenRows permuted = permute(writer, dispatch);
    writer.script.edge(GraphEdge::preprocess);
    if (!writer.model.drop_and_pad() && !counts_before_permutation(writer)) writer.script.host_sync(counts(writer));
    dispatch.tokens = to_experts(writer, "dispatch", permuted, {.widened = false, .beside = beside});
    return dispatch;
}

Combine combine_forward(Writer& writer, Slot expert_output, const std::function<void()>& beside) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::combine);
    const TokenRows rows{expert_output, {}, false};
    if (kind_of(writer) == TokenDispatcher::allgather) return gathered_combine(writer, expert_output);
    if (kind_of(writer) == TokenDispatcher::flex) return {fused_from_experts(writer, "combine", rows).rows, {}};
    const TokenRows returned = from_experts(writer, "combine", rows, {.widened = true, .beside = beside});
    Combine combine;
    combine.rows = save_summed(writer, returned.rows);
    combine.output = writer.make("combine.output", routed_shape(dim));
    writer.memory_kernel("combine.unpermute", 2 * (dim.sent_tokens * dim.routed_width + 2 * routed_elements(dim)));
    writer.script.drop(returned.rows);
    return combine;
}

Slot combine_backward(Writer& writer, const Combine& combine, const std::function<void()>& beside) {
    const Dimensions& dim = writer.dim;
    writer.script.part(Part::combine);
    if (kind_of(writer) == TokenDispatcher::allgather) return gathered_combine_backward(writer, combine);
    if (kind_of(writer) == TokenDispatcher::flex) return fused_to_experts(writer, "combine_backward", false).rows;
    const TokenRows permuted = make_rows(writer, "combine.gradient", dim.sent_tokens, false);
    writer.memory_kernel("combine.unpermute_backward", 2 * (dim.sent_tokens * dim.routed_width + routed_elements(dim)));
    forget_summed(writer, combine);
    return to_experts(writer, "combine_backward", permuted, {.widened = true, .beside = beside}).rows;
}

TokenRows dispatch_backward(Writer& writer, const Dispatch& dispatch, TokenRows tokens,
                            const std::function<void()>& beside) {
    ScriptBuilder& script = writer.script;
    const Dimensions& dim = writer.dim;
    script.part(Part::dispatch);
    if (kind_of(writer) != TokenDispatcher::alltoall) {
        const TokenRows own = kind_of(writer) == TokenDispatcher::flex ? fused_backward(writer, dispatch, tokens)
                                                                       : gathered_backward(writer, dispatch, tokens);
        script.edge(GraphEdge::preprocess);
        return own;
    }
    TokenRows permuted = from_experts(writer, "dispatch_backward", tokens, {.widened = false, .beside = beside});
    script.edge(GraphEdge::preprocess);
    const Slot hidden = writer.make("dispatch.input_gradient", routed_shape(dim));
    for (SavedIndex saved : dispatch.saved) script.read(saved);
    writer.memory_kernel("dispatch.permute_backward",
                         2 * (dim.sent_tokens * dim.routed_width + 2 * routed_elements(dim)));
    for (SavedIndex saved : dispatch.saved) script.forget(saved);
    script.drop(permuted.rows);
    permuted.rows = hidden;
    return permuted;
}

Bytes fused_dispatch_buffer(const types::Scenario& scenario, const Dimensions& dim) {
    const bool fused = scenario.parallel.moe_token_dispatcher_type == TokenDispatcher::flex;
    if (!scenario.model.has_experts() || !fused) return {};
    const std::int64_t in_node = std::clamp<std::int64_t>(scenario.hardware.node.gpus_per_node, 1, group_size(dim));
    const std::int64_t nodes = (group_size(dim) + in_node - 1) / in_node;
    const std::int64_t received = group_tokens(dim) * (2 * dim.routed_width + 4 * dim.local_experts * in_node);
    return Bytes{received + (nodes - 1) * 2 * routed_elements(dim)};
}

}  // namespace stowage::layers
