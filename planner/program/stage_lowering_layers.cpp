#include <algorithm>

#include "planner/program/stage_lowering.hpp"

namespace stowage::program {

using layers::StepKind;

bool StageLowering::on_side(const Hook& hook, std::size_t script, bool forward, Side side) const {
    if (side == Side::all) return true;
    const layers::LayerGraphs& graphs = *builder_.graphs_of(script);
    return (forward ? graphs.forward : graphs.backward).contains(hook.step) == (side == Side::captured);
}

std::vector<std::uint32_t> StageLowering::with_targets(std::uint32_t own, std::uint32_t neighbour) const {
    std::vector<std::uint32_t> scopes{own, neighbour};
    scopes.insert(scopes.end(), targets_.begin(), targets_.end());
    return scopes;
}

void StageLowering::add_layer_instance(BodyId body, Chunk chunk, std::size_t position, std::uint32_t neighbour) {
    add_instance(body, chunk.microbatch, layer_number(chunk, position), {frames_.layer(chunk, position), neighbour});
    std::vector<std::uint32_t>& frames = result_.program.scope_frames;
    frames.insert(frames.end(), targets_.begin(), targets_.end());
}

// ------------------------------------------------------------------------------------------------------------- forward

void StageLowering::forward(Chunk chunk) {
    manager_->begin_forward(number_of(chunk));
    for (std::size_t position = 0; position < positions(chunk); ++position) forward_position(chunk, position);
}

void StageLowering::forward_position(Chunk chunk, std::size_t position) {
    gather(buckets_.before_layer(chunk, position));
    if (chunk.microbatch == 0) prepare(chunk, position);
    ForwardDecisions& decisions = decisions_[frames_.layer(chunk, position)];
    const layers::RecomputedSpan* span = span_at(chunk, position);
    decisions = {};
    decisions.input_static = input_static(chunk, position);
    decisions.gradient_static = gradient_static(chunk, position);
    decisions.input_held = (position == 0 && receives(chunk)) || (span != nullptr && position == span->first);
    if (graphed(script_at(chunk, position))) return forward_around_graph(chunk, position, decisions);
    targets_.clear();
    if (span == nullptr) decide_forward(chunk, position, decisions, 0, kAllSteps);
    if (span != nullptr) decisions.pass = Pass::discarding;
    forward_layer(chunk, position, decisions);
    if (span != nullptr) decisions.pass = Pass::recomputing;
}

void StageLowering::prepare(Chunk chunk, std::size_t position) {
    const std::size_t script = script_at(chunk, position);
    if (stage_.preparations.empty() || !stage_.preparations[script]) return;
    const layers::LayerScript& preparation = *stage_.preparations[script];
    const BodyId id = body("prepare " + std::to_string(script), [&] { return builder_.bucket(preparation); });
    add_instance(id, chunk.microbatch, layer_number(chunk, position), {frames_.layer(chunk, position)});
}

void StageLowering::forward_layer(Chunk chunk, std::size_t position, const ForwardDecisions& decisions) {
    const std::size_t script = script_at(chunk, position);
    const BodyId id = layer_body(script, decisions, nullptr, [&] { return builder_.forward(script, decisions); });
    add_layer_instance(id, chunk, position, frame_after(chunk, position));
}

void StageLowering::decide_forward(Chunk chunk, std::size_t position, ForwardDecisions& decisions, std::size_t from,
                                   std::size_t to) {
    const std::size_t script = script_at(chunk, position);
    const std::uint32_t number = number_of(chunk);
    for (const Hook& hook : forward_hooks_[script]) {
        if (hook.step < from || hook.step >= to || !on_side(hook, script, true, decisions.side)) continue;
        const std::uint32_t group = group_number(chunk, position, hook.module);
        if (hook.kind == StepKind::start) {
            manager_->start(number, group);
            if (manager_->unmanaged(number, group)) decisions.unmanaged.insert(hook.module);
        } else if (delays(script, hook.module)) {
            if (!decisions.unmanaged.contains(hook.module)) decisions.delayed.insert(hook.module);
        } else {
            commit(chunk, position, hook.module, decisions);
        }
    }
}

bool StageLowering::commit(Chunk chunk, std::size_t position, types::Module module, ForwardDecisions& decisions) {
    const bool leaves = manager_->commit(number_of(chunk), group_number(chunk, position, module));
    if (const auto joined = manager_->joined(); joined && decisions.side != Side::captured)
        decisions.joins[static_cast<std::size_t>(module)] = reach(*joined, frames_.layer(chunk, position), false);
    if (!leaves) return false;
    decisions.offloaded.insert(module);
    const bool stands_for_all = decisions.side == Side::captured && shape_.ranks == 1;
    if (!backward_done_[frames_.layer(chunk, position)])
        count_offload(module, layouts_[script_at(chunk, position)].group_bytes(module),
                      stands_for_all ? shape_.microbatches : 1);
    return true;
}

void StageLowering::count_offload(types::Module module, Bytes bytes, std::int64_t times) {
    if (bytes == Bytes{0}) return;
    OffloadCounts& counts = result_.counts;
    if (stage_of_run_ == RunStage::record) {
        counts.record_groups += times;
        return;
    }
    if (stage_of_run_ == RunStage::eager) return;
    counts.bytes[static_cast<std::size_t>(module)] += Bytes{times * bytes.count};
    counts.groups[static_cast<std::size_t>(module)] += times;
}

// ------------------------------------------------------------------------------------------------------------ backward

void StageLowering::backward(Chunk chunk) {
    for (std::size_t position = positions(chunk); position-- > 0;) {
        const layers::RecomputedSpan* span = span_at(chunk, position);
        targets_.clear();
        if (span != nullptr && position == span->last)
            for (std::size_t again = span->first; again <= span->last; ++again)
                forward_layer(chunk, again, decisions_[frames_.layer(chunk, again)]);
        backward_layer(chunk, position);
        if (span != nullptr && position == span->first) end_recomputed(chunk, *span);
    }
    release_input(chunk);
}

void StageLowering::release_input(Chunk chunk) {
    if (interleaved() && receives(chunk) && !input_emptied(chunk)) {
        const BodyId id = body("release input", [&] { return builder_.free_inputs("release input", true, false); });
        add_instance(id, chunk.microbatch, -1, {frames_.layer(chunk, 0)});
    }
}

/// The checkpoint lets go of its input and of the output that it computed again.
void StageLowering::end_recomputed(Chunk chunk, const layers::RecomputedSpan& span) {
    const bool schedule_holds = span.first == 0 && receives(chunk);
    const BodyId id = body(schedule_holds ? "end of checkpoint, held" : "end of checkpoint",
                           [&] { return builder_.free_inputs("end of checkpoint", !schedule_holds, true); });
    add_instance(id, chunk.microbatch, layer_number(chunk, span.first),
                 {frames_.layer(chunk, span.first), frame_after(chunk, span.last)});
}

void StageLowering::backward_layer(Chunk chunk, std::size_t position) {
    const std::size_t script = script_at(chunk, position);
    const std::uint32_t frame = frames_.layer(chunk, position);
    const ForwardDecisions& forward_decisions = decisions_[frame];
    targets_.clear();
    const BackwardDecisions decisions = decide_backward(chunk, position, forward_decisions);
    const BodyId id = layer_body(script, forward_decisions, &decisions,
                                 [&] { return builder_.backward(script, forward_decisions, decisions); });
    if (graphed(script)) graph_ = backward_graphs_[captured_frame(chunk, position)];
    add_layer_instance(id, chunk, position, frame_before(chunk, position));
    backward_done_[frame] = true;
    launch(buckets_.after_layer(chunk, position), chunk.microbatch);
}

BackwardDecisions StageLowering::decide_backward(Chunk chunk, std::size_t position,
                                                 const ForwardDecisions& forward_decisions) {
    BackwardDecisions decisions;
    if (forward_decisions.pass == Pass::recomputing) return decisions;
    const std::size_t script = script_at(chunk, position);
    const std::uint32_t number = number_of(chunk);
    for (const Hook& hook : backward_hooks_[script]) {
        if (forward_decisions.unmanaged.contains(hook.module)) continue;
        if (!on_side(hook, script, false, forward_decisions.side)) continue;
        follow_orders(chunk, position, hook,
                      manager_->backward_hook(hook.kind, number, group_number(chunk, position, hook.module)),
                      decisions);
    }
    return decisions;
}

/// Inside a capture nobody waits for what another graph copied: graphs join their copies before they end.
void StageLowering::follow_orders(Chunk chunk, std::size_t position, const Hook& hook, const BackwardOrders& orders,
                                  BackwardDecisions& decisions) {
    const std::uint32_t own = frames_.layer(chunk, position);
    const bool captured = stage_of_run_ == RunStage::capture && builder_.graphs_of(script_at(chunk, position));
    const auto module = static_cast<std::size_t>(hook.module);
    if (orders.wait && (!captured || orders.wait_is_near)) decisions.waits[module] = reach(*orders.wait, own, false);
    if (orders.read_inline) {
        decisions.inline_read.insert(hook.module);
        count_inline_read();
    }
    if (orders.reload) decisions.targets[module] = reach(*orders.reload, kNoFrame, orders.reload_is_empty);
    if (orders.joins.empty() && orders.reloads.empty()) return;
    PlannedHook planned{hook.kind, hook.module, {}, {}};
    if (!captured)
        for (const GroupRef& joined : orders.joins) planned.joins.push_back(reach(joined, own, false));
    for (const GroupRef& reloaded : orders.reloads) planned.reloads.push_back(reach(reloaded, own, false));
    decisions.planned.push_back(std::move(planned));
}

void StageLowering::count_inline_read() {
    OffloadCounts& counts = result_.counts;
    if (stage_of_run_ == RunStage::eager) return;
    ++(stage_of_run_ == RunStage::record ? counts.record_inline_reads : counts.steady_inline_reads);
}

/// How a body in frame `own` reaches a group; its own frame needs no binding.
ReloadTarget StageLowering::reach(GroupRef ref, std::uint32_t own, bool empty) {
    const Chunk chunk = forwards_[ref.chunk];
    const GroupSite& site = (*groups_[static_cast<std::size_t>(chunk.virtual_stage)])[ref.group];
    const std::uint32_t frame = frames_.layer(chunk, site.position);
    return {static_cast<std::uint16_t>(script_at(chunk, site.position)), site.module,
            frame == own ? kOwnFrame : scope_of(frame), empty};
}

Scope StageLowering::scope_of(std::uint32_t frame) {
    std::size_t number = 0;
    while (number < targets_.size() && targets_[number] != frame) ++number;
    if (number == targets_.size()) targets_.push_back(frame);
    return static_cast<Scope>(kFirstTarget + number);
}

}  // namespace stowage::program
