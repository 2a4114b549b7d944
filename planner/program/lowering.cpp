#include "planner/program/lowering.hpp"

#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "planner/program/body_builder.hpp"
#include "planner/program/megatron_manager.hpp"
#include "planner/program/schedule.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

using layers::Step;
using layers::StepKind;

std::vector<FrameLayout> make_layouts(const layers::StageLayers& stage, const types::OffloadChoice& choice) {
    std::vector<FrameLayout> layouts;
    for (const layers::LayerScript& script : stage.scripts) layouts.emplace_back(script, choice);
    return layouts;
}

/// The steps of a script that concern the offload manager.
std::vector<Step> hook_steps(const layers::LayerScript& script, const FrameLayout& layout, bool forward) {
    std::vector<Step> hooks;
    for (const Step& step : forward ? script.forward : script.backward) {
        const bool hook = step.kind == StepKind::start || step.kind == StepKind::commit;
        if (hook && layout.has_group(step.module)) hooks.push_back(step);
        if (forward || step.kind != StepKind::read) continue;
        if (!layout.is_movable(step.saved)) continue;  // it never left the device
        hooks.push_back(step);
        hooks.back().module = *script.saved[layers::index(step.saved)].group;
    }
    return hooks;
}

/// Numbers of the frames of a rank: for each microbatch its layers, then what arrives from and leaves to the
/// neighbours; last what lives through the whole run.
class Frames {
public:
    Frames(std::int64_t microbatches, std::size_t positions)
        : microbatches_(static_cast<std::uint32_t>(microbatches)), positions_(static_cast<std::uint32_t>(positions)) {}
    [[nodiscard]] std::uint32_t layer(std::int64_t microbatch, std::size_t position) const {
        return static_cast<std::uint32_t>(microbatch) * (positions_ + 2) + static_cast<std::uint32_t>(position);
    }
    [[nodiscard]] std::uint32_t inward(std::int64_t microbatch) const { return layer(microbatch, positions_); }
    [[nodiscard]] std::uint32_t outward(std::int64_t microbatch) const { return layer(microbatch, positions_ + 1); }
    [[nodiscard]] std::uint32_t persistent() const { return microbatches_ * (positions_ + 2); }
    [[nodiscard]] std::uint32_t optimizer() const { return persistent() + 1; }

private:
    std::uint32_t microbatches_;
    std::uint32_t positions_;
};

class Lowering {
public:
    Lowering(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
             types::RuleSet rules, const Durations& durations)
        : stage_(stage),
          microbatches_(microbatches),
          layouts_(make_layouts(stage, choice)),
          builder_(stage, layouts_, durations, result_.program),
          frames_(microbatches, stage.order.size()),
          manager_(chunk_groups(), backward_order(), stage.pipeline_rank, choice, rules) {
        for (std::size_t i = 0; i < stage_.scripts.size(); ++i) {
            forward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], true));
            backward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], false));
        }
        decisions_.resize(static_cast<std::size_t>(microbatches) * stage_.order.size());
        result_.program.pipeline_rank = stage.pipeline_rank;
    }

    Lowered run() {
        place_frames();
        set_up();
        manager_.begin_record();
        step(RunStage::record);
        manager_.begin_steady();
        step(RunStage::steady);
        finish_counts();
        return std::move(result_);
    }

private:
    // ------------------------------------------------------------------------------------------------------- structure

    [[nodiscard]] std::size_t script_at(std::size_t position) const { return stage_.order[position]; }
    [[nodiscard]] bool first_stage() const { return stage_.pipeline_rank == 0; }

    std::vector<std::shared_ptr<const ChunkGroups>> chunk_groups() {
        auto groups = std::make_shared<ChunkGroups>();
        for (std::size_t position = 0; position < stage_.order.size(); ++position) {
            group_base_.push_back(static_cast<std::uint32_t>(groups->size()));
            const FrameLayout& layout = layouts_[script_at(position)];
            for (const types::Module module : layout.groups())
                groups->push_back({module, static_cast<std::uint32_t>(position), layout.group_bytes(module)});
        }
        groups_ = groups;
        return {static_cast<std::size_t>(microbatches_), std::move(groups)};
    }

    /// With one virtual stage backwards run in the order of the forwards.
    [[nodiscard]] std::vector<std::uint32_t> backward_order() const {
        std::vector<std::uint32_t> order(static_cast<std::size_t>(microbatches_));
        std::iota(order.begin(), order.end(), 0U);
        return order;
    }

    void place_frames() {
        StepProgram& program = result_.program;
        auto add = [&program, slot = 0U, event = 0U](std::uint32_t slots, std::uint32_t events) mutable {
            program.frame_slots.push_back(slot);
            program.frame_events.push_back(event);
            slot += slots;
            event += events;
        };
        for (std::int64_t microbatch = 0; microbatch < microbatches_; ++microbatch) {
            for (const std::size_t script : stage_.order) add(layouts_[script].slots(), layouts_[script].events());
            add(2, 0);
            add(2, 0);
        }
        add(static_cast<std::uint32_t>(stage_.states.size()), 0);
        add(static_cast<std::uint32_t>(stage_.optimizer.tensors.size()), 0);
        add(0, 0);  // the end
    }

    // ------------------------------------------------------------------------------------------------------- instances

    template <class Make>
    BodyId body(const std::string& key, Make&& make) {
        const auto [entry, added] = bodies_.try_emplace(key, static_cast<BodyId>(result_.program.bodies.size()));
        if (added) result_.program.bodies.push_back(make());
        return entry->second;
    }

    void add_instance(RunStage stage, BodyId body, std::int64_t microbatch, std::int64_t layer,
                      std::initializer_list<std::uint32_t> scopes) {
        StepProgram& program = result_.program;
        program.sequence[static_cast<std::size_t>(stage)].push_back(
            {body, static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(layer),
             static_cast<std::uint32_t>(program.scope_frames.size())});
        program.scope_frames.insert(program.scope_frames.end(), scopes);
    }

    void set_up() {
        const BodyId setup = body("setup", [&] { return builder_.setup(); });
        add_instance(RunStage::setup, setup, -1, -1, {frames_.persistent(), frames_.persistent()});
    }

    void step(RunStage stage) {
        for (const ScheduleStep& entry :
             one_forward_one_backward(stage_.pipeline_rank, stage_.pipeline_size, microbatches_)) {
            if (manager_.chunk_mismatch()) break;
            schedule_step(stage, entry);
        }
        result_.chunk_mismatch = manager_.chunk_mismatch();
        const bool first = stage == RunStage::record;
        const BodyId optimizer =
            body(first ? "first optimizer" : "optimizer", [&] { return builder_.optimizer(first); });
        add_instance(stage, optimizer, -1, -1, {frames_.optimizer(), frames_.persistent()});
    }

    void schedule_step(RunStage stage, const ScheduleStep& entry) {
        using Kind = ScheduleStep::Kind;
        const std::int64_t sent = entry.microbatch;
        switch (entry.kind) {
            case Kind::forward: forward(stage, sent); break;
            case Kind::backward: backward(stage, sent); break;
            case Kind::receive_forward: transfer(stage, "receive_forward", -1, {}, sent); break;
            case Kind::send_forward: transfer(stage, "send_forward", +1, sent, {}); break;
            case Kind::send_forward_receive_backward:
                transfer(stage, "send_forward_receive_backward", +1, sent, entry.received);
                break;
            case Kind::receive_backward: transfer(stage, "receive_backward", +1, {}, sent); break;
            case Kind::send_backward: transfer(stage, "send_backward", -1, sent, {}); break;
            case Kind::send_backward_receive_forward:
                transfer(stage, "send_backward_receive_forward", -1, sent, entry.received);
                break;
        }
    }

    /// A transfer with the neighbour `peer`. To the next stage go outputs and come output gradients; to the previous
    /// one go input gradients and come inputs.
    void transfer(RunStage stage, const char* name, std::int8_t peer, std::optional<std::int64_t> sent,
                  std::optional<std::int64_t> received) {
        const bool next = peer > 0;
        const std::size_t last = stage_.order.size() - 1;
        const layers::Slot sent_slot = next ? layers::kInput : layers::kGradOutput;
        const layers::Slot received_slot = next ? layers::kGradOutput : layers::kInput;
        const bool release = sent && !next && !builder_.releases_input(script_at(0), decisions_of(*sent, 0));
        const BodyId id = body(std::string(name) + (release ? "+" : ""), [&] {
            return builder_.transfer(name, peer, sent ? std::optional(sent_slot) : std::nullopt,
                                     received ? std::optional(received_slot) : std::nullopt, release);
        });
        const std::uint32_t from = sent ? (next ? frames_.outward(*sent) : frames_.inward(*sent)) : 0;
        const std::uint32_t to = received ? frames_.layer(*received, next ? last : 0) : 0;
        add_instance(stage, id, sent ? *sent : *received, -1, {from, to, sent ? frames_.layer(*sent, 0) : 0});
    }

    // ----------------------------------------------------------------------------------------------------------
    // forward

    ForwardDecisions& decisions_of(std::int64_t microbatch, std::size_t position) {
        return decisions_[static_cast<std::size_t>(microbatch) * stage_.order.size() + position];
    }

    [[nodiscard]] std::uint32_t group_number(std::size_t position, types::Module module) const {
        return group_base_[position] + layouts_[script_at(position)].group_index(module);
    }

    void forward(RunStage stage, std::int64_t microbatch) {
        manager_.begin_forward(static_cast<std::uint32_t>(microbatch));
        for (std::size_t position = 0; position < stage_.order.size(); ++position)
            forward_layer(stage, microbatch, position);
    }

    void forward_layer(RunStage stage, std::int64_t microbatch, std::size_t position) {
        const std::size_t script = script_at(position);
        ForwardDecisions& decisions = decisions_of(microbatch, position);
        decisions = decide_forward(stage, static_cast<std::uint32_t>(microbatch), position);
        const BodyId id =
            body(body_key(script, decisions, nullptr), [&] { return builder_.forward(script, decisions); });
        const bool last = position + 1 == stage_.order.size();
        add_instance(stage, id, microbatch, stage_.layer_numbers[position],
                     {frames_.layer(microbatch, position),
                      last ? frames_.outward(microbatch) : frames_.layer(microbatch, position + 1)});
    }

    ForwardDecisions decide_forward(RunStage stage, std::uint32_t chunk, std::size_t position) {
        ForwardDecisions decisions;
        decisions.input_held = position == 0 && !first_stage();
        const FrameLayout& layout = layouts_[script_at(position)];
        for (const Step& hook : forward_hooks_[script_at(position)]) {
            const std::uint32_t group = group_number(position, hook.module);
            if (hook.kind == StepKind::start) {
                manager_.start(chunk, group);
                if (manager_.unmanaged(chunk, group)) decisions.unmanaged.insert(hook.module);
            } else if (manager_.commit(chunk, group)) {
                decisions.offloaded.insert(hook.module);
                count_offload(stage, hook.module, layout.group_bytes(hook.module));
            }
        }
        return decisions;
    }

    void count_offload(RunStage stage, types::Module module, Bytes bytes) {
        if (bytes == Bytes{0}) return;
        OffloadCounts& counts = result_.counts;
        if (stage == RunStage::record) {
            ++counts.record_groups;
            return;
        }
        counts.bytes[static_cast<std::size_t>(module)] += bytes;
        ++counts.groups[static_cast<std::size_t>(module)];
    }

    // ---------------------------------------------------------------------------------------------------------
    // backward

    void backward(RunStage stage, std::int64_t microbatch) {
        for (std::size_t position = stage_.order.size(); position-- > 0;) backward_layer(stage, microbatch, position);
    }

    void backward_layer(RunStage stage, std::int64_t microbatch, std::size_t position) {
        const std::size_t script = script_at(position);
        const ForwardDecisions& forward_decisions = decisions_of(microbatch, position);
        targets_.clear();
        const BackwardDecisions decisions =
            decide_backward(stage, static_cast<std::uint32_t>(microbatch), position, forward_decisions);
        const BodyId id = body(body_key(script, forward_decisions, &decisions),
                               [&] { return builder_.backward(script, forward_decisions, decisions); });
        const std::uint32_t neighbour =
            position == 0 ? frames_.inward(microbatch) : frames_.layer(microbatch, position - 1);
        add_instance(stage, id, microbatch, stage_.layer_numbers[position],
                     {frames_.layer(microbatch, position), neighbour});
        StepProgram& program = result_.program;
        program.scope_frames.insert(program.scope_frames.end(), targets_.begin(), targets_.end());
    }

    BackwardDecisions decide_backward(RunStage stage, std::uint32_t chunk, std::size_t position,
                                      const ForwardDecisions& forward_decisions) {
        BackwardDecisions decisions;
        for (const Step& hook : backward_hooks_[script_at(position)]) {
            if (forward_decisions.unmanaged.contains(hook.module)) continue;
            const std::uint32_t group = group_number(position, hook.module);
            if (hook.kind == StepKind::commit)
                if (const auto awaited = manager_.commit_backward(chunk, group))
                    decisions.waits[static_cast<std::size_t>(hook.module)] = reach(*awaited, position);
            if (hook.kind == StepKind::read && manager_.read(chunk, group)) {
                decisions.inline_read.insert(hook.module);
                OffloadCounts& counts = result_.counts;
                ++(stage == RunStage::record ? counts.record_inline_reads : counts.steady_inline_reads);
            }
            if (hook.kind == StepKind::start)
                decisions.targets[static_cast<std::size_t>(hook.module)] = prefetch(chunk);
        }
        return decisions;
    }

    /// How the backward of the layer at `position` reaches a group of the same microbatch; its own frame needs no
    /// binding.
    ReloadTarget reach(GroupRef ref, std::size_t position) {
        const GroupSite& site = (*groups_)[ref.group];
        const Scope scope = site.position == position ? kOwnFrame : scope_of(frames_.layer(ref.chunk, site.position));
        return {static_cast<std::uint16_t>(script_at(site.position)), site.module, scope, false};
    }

    std::optional<ReloadTarget> prefetch(std::uint32_t chunk) {
        const std::optional<GroupRef> group = manager_.start_backward(chunk);
        if (!group) return std::nullopt;
        const GroupSite& site = (*groups_)[group->group];
        return ReloadTarget{static_cast<std::uint16_t>(script_at(site.position)), site.module,
                            scope_of(frames_.layer(group->chunk, site.position)), !manager_.prefetched(*group)};
    }

    Scope scope_of(std::uint32_t frame) {
        std::size_t number = 0;
        while (number < targets_.size() && targets_[number] != frame) ++number;
        if (number == targets_.size()) targets_.push_back(frame);
        return static_cast<Scope>(kFirstTarget + number);
    }

    void finish_counts() {
        for (const auto& [module, name] : types::enum_names<types::Module>())
            result_.counts.table[static_cast<std::size_t>(module)] = manager_.table_bytes(module);
        for (const GroupSite& site : *groups_)
            if (site.bytes > Bytes{0}) result_.counts.eligible_groups += microbatches_;
        result_.released_while_saved = builder_.released_while_saved();
    }

    const layers::StageLayers& stage_;
    std::int64_t microbatches_;
    Lowered result_;
    std::vector<FrameLayout> layouts_;
    BodyBuilder builder_;
    Frames frames_;
    std::shared_ptr<const ChunkGroups> groups_;
    std::vector<std::uint32_t> group_base_;
    MegatronManager manager_;
    std::vector<std::vector<Step>> forward_hooks_;
    std::vector<std::vector<Step>> backward_hooks_;
    std::vector<ForwardDecisions> decisions_;
    std::vector<std::uint32_t> targets_;
    std::unordered_map<std::string, BodyId> bodies_;
};

}  // namespace

Lowered lower(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
              types::RuleSet rules, const Durations& durations) {
    STOWAGE_CHECK(microbatches >= 1, "a step has at least one microbatch");
    STOWAGE_CHECK(!stage.order.empty(), "a stage has at least one frame");
    return Lowering(stage, microbatches, choice, rules, durations).run();
}

}  // namespace stowage::program
