#include "planner/program/lowering.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "planner/program/body_builder.hpp"
#include "planner/program/bucket_schedule.hpp"
#include "planner/program/frames.hpp"
#include "planner/program/megatron_manager.hpp"
#include "planner/program/offload_hooks.hpp"
#include "planner/program/schedule.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

using layers::Step;
using layers::StepKind;

class Lowering {
public:
    Lowering(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
             types::RuleSet rules, const Durations& durations)
        : stage_(stage),
          shape_(shape_of(stage, microbatches)),
          layouts_(make_layouts(stage, choice)),
          builder_(stage, layouts_, durations, result_.program),
          frames_(stage, microbatches),
          forwards_(forward_chunks(shape_)),
          buckets_(stage, shape_),
          manager_(chunk_groups(), manager_backward_order(forwards_, shape_.virtual_stages), stage.pipeline_rank,
                   choice, rules) {
        for (std::size_t i = 0; i < stage_.scripts.size(); ++i) {
            forward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], true));
            backward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], false));
        }
        decisions_.resize(frames_.persistent());
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

    [[nodiscard]] const layers::ChunkLayers& layers_of(Chunk chunk) const {
        return stage_.chunks[static_cast<std::size_t>(chunk.virtual_stage)];
    }
    [[nodiscard]] std::size_t script_at(Chunk chunk, std::size_t position) const {
        return layers_of(chunk).order[position];
    }
    /// Whether the chunk's input comes from a neighbour.
    [[nodiscard]] bool receives(Chunk chunk) const { return stage_.pipeline_rank > 0 || chunk.virtual_stage > 0; }
    [[nodiscard]] bool interleaved() const { return shape_.virtual_stages > 1; }

    /// The manager's number of a chunk is its place among the forwards.
    [[nodiscard]] std::uint32_t number_of(Chunk chunk) const {
        return numbers_[static_cast<std::size_t>(chunk.virtual_stage * shape_.microbatches + chunk.microbatch)];
    }

    std::vector<std::shared_ptr<const ChunkGroups>> chunk_groups() {
        for (const layers::ChunkLayers& chunk : stage_.chunks) {
            auto groups = std::make_shared<ChunkGroups>();
            std::vector<std::uint32_t> base;
            for (std::size_t position = 0; position < chunk.order.size(); ++position) {
                base.push_back(static_cast<std::uint32_t>(groups->size()));
                const FrameLayout& layout = layouts_[chunk.order[position]];
                for (const types::Module module : layout.groups())
                    groups->push_back({module, static_cast<std::uint32_t>(position), layout.group_bytes(module)});
            }
            groups_.push_back(std::move(groups));
            group_base_.push_back(std::move(base));
        }
        std::vector<std::shared_ptr<const ChunkGroups>> of_chunks;
        numbers_.resize(forwards_.size());
        for (const Chunk chunk : forwards_) {
            numbers_[static_cast<std::size_t>(chunk.virtual_stage * shape_.microbatches + chunk.microbatch)] =
                static_cast<std::uint32_t>(of_chunks.size());
            of_chunks.push_back(groups_[static_cast<std::size_t>(chunk.virtual_stage)]);
        }
        return of_chunks;
    }

    void place_frames() {
        StepProgram& program = result_.program;
        auto add = [&program, slot = 0U, event = 0U](std::uint32_t slots, std::uint32_t events) mutable {
            program.frame_slots.push_back(slot);
            program.frame_events.push_back(event);
            slot += slots;
            event += events;
        };
        for (const layers::ChunkLayers& chunk : stage_.chunks) {
            for (std::int64_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
                for (const std::size_t script : chunk.order) add(layouts_[script].slots(), layouts_[script].events());
                add(2, 0);
                add(2, 0);
            }
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

    template <class Frames>
    void add_instance(RunStage stage, BodyId body, std::int64_t microbatch, std::int64_t layer, const Frames& scopes) {
        StepProgram& program = result_.program;
        program.sequence[static_cast<std::size_t>(stage)].push_back(
            {body, static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(layer),
             static_cast<std::uint32_t>(program.scope_frames.size())});
        program.scope_frames.insert(program.scope_frames.end(), std::begin(scopes), std::end(scopes));
    }
    void add_instance(RunStage stage, BodyId body, std::int64_t microbatch, std::int64_t layer,
                      std::initializer_list<std::uint32_t> scopes) {
        add_instance<std::initializer_list<std::uint32_t>>(stage, body, microbatch, layer, scopes);
    }

    void set_up() {
        const BodyId setup = body("setup", [&] { return builder_.setup(); });
        add_instance(RunStage::setup, setup, -1, -1, {frames_.persistent(), frames_.persistent()});
    }

    void step(RunStage stage) {
        if (stage == RunStage::steady && has_states_between_steps())
            add_instance(stage, body("begin", [&] { return builder_.begin_step(); }), -1, -1, {frames_.persistent()});
        buckets_.begin_step();
        launch(stage, buckets_.at_step_begin(), 0);
        for (const ScheduleStep& entry : pipeline_schedule(shape_)) {
            if (manager_.chunk_mismatch()) break;
            schedule_step(stage, entry);
        }
        if (buckets_.any_reductions()) await_buckets(stage);
        result_.chunk_mismatch = manager_.chunk_mismatch();
        const bool first = stage == RunStage::record;
        const BodyId optimizer =
            body(first ? "first optimizer" : "optimizer", [&] { return builder_.optimizer(first); });
        add_instance(stage, optimizer, -1, -1, {frames_.optimizer(), frames_.persistent()});
    }

    [[nodiscard]] bool has_states_between_steps() const {
        return std::any_of(stage_.states.begin(), stage_.states.end(), [](const layers::StateBuffer& state) {
            return state.when == layers::StateBuffer::When::between_steps;
        });
    }

    void schedule_step(RunStage stage, const ScheduleStep& entry) {
        using Kind = ScheduleStep::Kind;
        using Call = BodyBuilder::TransferCall;
        // Interleaved stages whose transfers overlap use single sends and receives, which nothing synchronises.
        const bool batched = !interleaved() || !stage_.overlapped_transfers;
        switch (entry.kind) {
            case Kind::forward:
                gather(stage, buckets_.before_chunk(entry.chunk));
                forward(stage, entry.chunk);
                break;
            case Kind::backward:
                backward(stage, entry.chunk);
                launch(stage, buckets_.after_backward(), shape_.microbatches - 1);
                break;
            case Kind::paired:
                gather(stage, buckets_.before_chunk(entry.chunk));
                paired(stage, entry.chunk, entry.other);
                launch(stage, buckets_.after_backward(), shape_.microbatches - 1);
                break;
            case Kind::exchange:
                transfers(stage, entry.transfers, batched ? Call::grouped_and_synchronised : Call::grouped);
                break;
            case Kind::post: transfers(stage, entry.transfers, Call::post); break;
            case Kind::await: transfers(stage, entry.transfers, Call::await); break;
        }
    }

    // --------------------------------------------------------------------------------------------------------- buckets

    void launch(RunStage stage, const BucketSchedule::Launches& launches, std::int64_t microbatch) {
        for (const layers::OverlappedBucket* bucket : launches) {
            const BodyId id = body(bucket->script.name, [&] { return builder_.bucket(bucket->script); });
            add_instance(stage, id, microbatch, -1, {frames_.optimizer(), frames_.persistent()});
        }
    }
    void await_buckets(RunStage stage) {
        add_instance(stage, body("await buckets", [&] { return builder_.await_buckets(); }), -1, -1,
                     {frames_.optimizer()});
    }
    void gather(RunStage stage, const std::vector<BucketSchedule::Wait>& waits) {
        for (const BucketSchedule::Wait& wait : waits) {
            launch(stage, wait.before, 0);
            await_buckets(stage);
            launch(stage, wait.after, 0);
        }
    }

    [[nodiscard]] std::uint32_t frame_of(const Transfer& transfer) const {
        const std::size_t last = layers_of(transfer.chunk).order.size() - 1;
        switch (transfer.kind) {
            case TransferKind::send_forward: return frames_.outward(transfer.chunk);
            case TransferKind::receive_forward: return frames_.layer(transfer.chunk, 0);
            case TransferKind::send_backward: return frames_.inward(transfer.chunk);
            case TransferKind::receive_backward: return frames_.layer(transfer.chunk, last);
        }
        return 0;
    }

    void transfers(RunStage stage, const std::vector<Transfer>& transfers, BodyBuilder::TransferCall call) {
        std::string key = "transfers " + std::to_string(static_cast<int>(call));
        std::vector<BodyBuilder::TransferPart> parts;
        std::vector<std::uint32_t> scopes;
        for (const Transfer& transfer : transfers) {
            // Plain 1F1B holds a chunk's input in a variable until its gradient is sent.
            const bool release =
                transfer.kind == TransferKind::send_backward && !interleaved() && !input_emptied(transfer.chunk);
            parts.push_back({transfer.kind, release});
            key += " " + std::to_string(static_cast<int>(transfer.kind)) + (release ? "+" : "");
            scopes.push_back(frame_of(transfer));
            scopes.push_back(frames_.layer(transfer.chunk, 0));
        }
        const BodyId id = body(key, [&] { return builder_.transfers(parts, call); });
        add_instance(stage, id, transfers.front().chunk.microbatch, -1, scopes);
    }

    [[nodiscard]] bool input_emptied(Chunk chunk) const {
        return builder_.releases_input(script_at(chunk, 0), decisions_[frames_.layer(chunk, 0)]);
    }

    // --------------------------------------------------------------------------------------------------------- forward

    [[nodiscard]] std::uint32_t group_number(Chunk chunk, std::size_t position, types::Module module) const {
        const auto stage = static_cast<std::size_t>(chunk.virtual_stage);
        return group_base_[stage][position] + layouts_[script_at(chunk, position)].group_index(module);
    }

    /// The span of recomputed frames that `position` lies in.
    [[nodiscard]] const layers::RecomputedSpan* span_at(Chunk chunk, std::size_t position) const {
        for (const layers::RecomputedSpan& span : layers_of(chunk).recomputed)
            if (span.first <= position && position <= span.last) return &span;
        return nullptr;
    }

    /// The frame that takes a layer's output: the next layer's, or what leaves to the neighbour.
    [[nodiscard]] std::uint32_t frame_after(Chunk chunk, std::size_t position) const {
        const bool last = position + 1 == layers_of(chunk).order.size();
        return last ? frames_.outward(chunk) : frames_.layer(chunk, position + 1);
    }

    void forward(RunStage stage, Chunk chunk) {
        manager_.begin_forward(number_of(chunk));
        for (std::size_t position = 0; position < layers_of(chunk).order.size(); ++position)
            forward_position(stage, chunk, position);
    }

    void forward_position(RunStage stage, Chunk chunk, std::size_t position) {
        gather(stage, buckets_.before_layer(chunk, position));
        ForwardDecisions& decisions = decisions_[frames_.layer(chunk, position)];
        const layers::RecomputedSpan* span = span_at(chunk, position);
        decisions = span != nullptr ? ForwardDecisions{} : decide_forward(stage, chunk, position);
        decisions.input_held = (position == 0 && receives(chunk)) || (span != nullptr && position == span->first);
        if (span != nullptr) decisions.pass = Pass::discarding;
        forward_layer(stage, chunk, position, decisions);
        if (span != nullptr) decisions.pass = Pass::recomputing;
    }

    void forward_layer(RunStage stage, Chunk chunk, std::size_t position, const ForwardDecisions& decisions) {
        const std::size_t script = script_at(chunk, position);
        const BodyId id =
            body(body_key(script, decisions, nullptr), [&] { return builder_.forward(script, decisions); });
        add_instance(stage, id, chunk.microbatch, layers_of(chunk).layer_numbers[position],
                     {frames_.layer(chunk, position), frame_after(chunk, position)});
    }

    ForwardDecisions decide_forward(RunStage stage, Chunk chunk, std::size_t position) {
        ForwardDecisions decisions;
        const std::size_t script = script_at(chunk, position);
        const FrameLayout& layout = layouts_[script];
        const std::uint32_t number = number_of(chunk);
        for (const Step& hook : forward_hooks_[script]) {
            const std::uint32_t group = group_number(chunk, position, hook.module);
            if (hook.kind == StepKind::start) {
                manager_.start(number, group);
                if (manager_.unmanaged(number, group)) decisions.unmanaged.insert(hook.module);
            } else if (manager_.commit(number, group)) {
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

    // ---------------------------------------------------------------------------------------------------------- paired

    [[nodiscard]] bool is_layer(Chunk chunk, std::size_t position) const {
        return layers_of(chunk).layer_numbers[position] >= 0;
    }

    /// The forward of one chunk beside the backward of another: what is not a layer first, then pairs of layers, then
    /// the layers that one has more, then the rest.
    void paired(RunStage stage, Chunk ahead, Chunk back) {
        manager_.begin_forward(number_of(ahead));
        std::size_t next = 0;
        std::size_t left = layers_of(back).order.size();
        while (left > 0 && !is_layer(back, left - 1)) backward_layer(stage, back, --left);
        const auto forward_left = [&] { return next < layers_of(ahead).order.size(); };
        while (forward_left() && !is_layer(ahead, next)) forward_position(stage, ahead, next++);
        while (left > 0 && is_layer(back, left - 1) && forward_left() && is_layer(ahead, next))
            pair_of_layers(stage, ahead, next++, back, --left);
        while (left > 0) backward_layer(stage, back, --left);
        while (forward_left()) forward_position(stage, ahead, next++);
        release_input(stage, back);
    }

    using SegmentBodies = std::array<std::optional<BodyId>, kSegmentCount>;

    template <class Make>
    SegmentBodies segment_bodies(const std::string& key, Make&& make) {
        const auto [entry, added] = segments_.try_emplace(key);
        if (added) {
            BodySegments made = make();
            for (std::size_t i = 0; i < made.size(); ++i) {
                if (made[i].operations.empty()) continue;
                entry->second[i] = static_cast<BodyId>(result_.program.bodies.size());
                result_.program.bodies.push_back(std::move(made[i]));
            }
        }
        return entry->second;
    }

    void pair_of_layers(RunStage stage, Chunk ahead, std::size_t next, Chunk back, std::size_t position) {
        const std::size_t back_script = script_at(back, position);
        const ForwardDecisions& before = decisions_[frames_.layer(back, position)];
        targets_.clear();
        const BackwardDecisions backward = decide_backward(stage, back, position, before);
        std::vector<std::uint32_t> back_frames{frames_.layer(back, position), frame_before(back, position)};
        back_frames.insert(back_frames.end(), targets_.begin(), targets_.end());
        const SegmentBodies back_bodies = segment_bodies(body_key(back_script, before, &backward), [&] {
            return builder_.backward_segments(back_script, before, backward);
        });

        const std::size_t script = script_at(ahead, next);
        ForwardDecisions& decisions = decisions_[frames_.layer(ahead, next)];
        gather(stage, buckets_.before_layer(ahead, next));
        decisions = decide_forward(stage, ahead, next);
        decisions.input_held = next == 0 && receives(ahead);
        const std::vector<std::uint32_t> frames{frames_.layer(ahead, next), frame_after(ahead, next)};
        const SegmentBodies bodies = segment_bodies(body_key(script, decisions, nullptr),
                                                    [&] { return builder_.forward_segments(script, decisions); });

        const auto run_back = [&](Segment segment) {
            if (const auto id = back_bodies[index(segment)])
                add_instance(stage, *id, back.microbatch, layers_of(back).layer_numbers[position], back_frames);
        };
        const auto run = [&](Segment segment) {
            if (const auto id = bodies[index(segment)])
                add_instance(stage, *id, ahead.microbatch, layers_of(ahead).layer_numbers[next], frames);
        };
        run_back(Segment::before);
        run_back(Segment::first_exchange);
        run(Segment::before);
        run_back(Segment::between);
        run(Segment::first_exchange);
        run_back(Segment::between_gradients);
        run_back(Segment::second_exchange);
        run(Segment::between);
        run(Segment::second_exchange);
        run_back(Segment::after);
        run(Segment::after);
        run_back(Segment::after_gradients);
        launch(stage, buckets_.after_layer(back, position), back.microbatch);
    }

    // -------------------------------------------------------------------------------------------------------- backward

    /// The frame that takes the gradient of a layer's input.
    [[nodiscard]] std::uint32_t frame_before(Chunk chunk, std::size_t position) const {
        return position == 0 ? frames_.inward(chunk) : frames_.layer(chunk, position - 1);
    }

    void backward(RunStage stage, Chunk chunk) {
        for (std::size_t position = layers_of(chunk).order.size(); position-- > 0;) {
            const layers::RecomputedSpan* span = span_at(chunk, position);
            if (span != nullptr && position == span->last)
                for (std::size_t again = span->first; again <= span->last; ++again)
                    forward_layer(stage, chunk, again, decisions_[frames_.layer(chunk, again)]);
            backward_layer(stage, chunk, position);
            if (span != nullptr && position == span->first) end_recomputed(stage, chunk, *span);
        }
        release_input(stage, chunk);
    }

    void release_input(RunStage stage, Chunk chunk) {
        if (interleaved() && receives(chunk) && !input_emptied(chunk)) {
            const BodyId id = body("release input", [&] { return builder_.free_inputs("release input", true, false); });
            add_instance(stage, id, chunk.microbatch, -1, {frames_.layer(chunk, 0)});
        }
    }

    /// The checkpoint lets go of its input and of the output that it computed again.
    void end_recomputed(RunStage stage, Chunk chunk, const layers::RecomputedSpan& span) {
        const bool schedule_holds = span.first == 0 && receives(chunk);
        const BodyId id = body(schedule_holds ? "end of checkpoint, held" : "end of checkpoint",
                               [&] { return builder_.free_inputs("end of checkpoint", !schedule_holds, true); });
        add_instance(stage, id, chunk.microbatch, layers_of(chunk).layer_numbers[span.first],
                     {frames_.layer(chunk, span.first), frame_after(chunk, span.last)});
    }

    void backward_layer(RunStage stage, Chunk chunk, std::size_t position) {
        const std::size_t script = script_at(chunk, position);
        const ForwardDecisions& forward_decisions = decisions_[frames_.layer(chunk, position)];
        targets_.clear();
        const BackwardDecisions decisions = decide_backward(stage, chunk, position, forward_decisions);
        const BodyId id = body(body_key(script, forward_decisions, &decisions),
                               [&] { return builder_.backward(script, forward_decisions, decisions); });
        const std::uint32_t neighbour = frame_before(chunk, position);
        add_instance(stage, id, chunk.microbatch, layers_of(chunk).layer_numbers[position],
                     {frames_.layer(chunk, position), neighbour});
        StepProgram& program = result_.program;
        program.scope_frames.insert(program.scope_frames.end(), targets_.begin(), targets_.end());
        launch(stage, buckets_.after_layer(chunk, position), chunk.microbatch);
    }

    BackwardDecisions decide_backward(RunStage stage, Chunk chunk, std::size_t position,
                                      const ForwardDecisions& forward_decisions) {
        BackwardDecisions decisions;
        if (forward_decisions.pass == Pass::recomputing) return decisions;
        const std::uint32_t number = number_of(chunk);
        for (const Step& hook : backward_hooks_[script_at(chunk, position)]) {
            if (forward_decisions.unmanaged.contains(hook.module)) continue;
            const std::uint32_t group = group_number(chunk, position, hook.module);
            if (hook.kind == StepKind::commit)
                if (const auto awaited = manager_.commit_backward(number, group))
                    decisions.waits[static_cast<std::size_t>(hook.module)] =
                        reach(*awaited, frames_.layer(chunk, position), false);
            if (hook.kind == StepKind::read && manager_.read(number, group)) {
                decisions.inline_read.insert(hook.module);
                OffloadCounts& counts = result_.counts;
                ++(stage == RunStage::record ? counts.record_inline_reads : counts.steady_inline_reads);
            }
            if (hook.kind == StepKind::start)
                if (const auto group_ahead = manager_.start_backward(number))
                    decisions.targets[static_cast<std::size_t>(hook.module)] =
                        reach(*group_ahead, kNoFrame, !manager_.prefetched(*group_ahead));
        }
        return decisions;
    }

    /// How a backward in frame `own` reaches a group; its own frame needs no binding.
    ReloadTarget reach(GroupRef ref, std::uint32_t own, bool empty) {
        const Chunk chunk = forwards_[ref.chunk];
        const GroupSite& site = (*groups_[static_cast<std::size_t>(chunk.virtual_stage)])[ref.group];
        const std::uint32_t frame = frames_.layer(chunk, site.position);
        return {static_cast<std::uint16_t>(script_at(chunk, site.position)), site.module,
                frame == own ? kOwnFrame : scope_of(frame), empty};
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
        for (const auto& groups : groups_)
            for (const GroupSite& site : *groups)
                if (site.bytes > Bytes{0}) result_.counts.eligible_groups += shape_.microbatches;
        result_.released_while_saved = builder_.released_while_saved();
    }

    static constexpr std::uint32_t kNoFrame = UINT32_MAX;

    const layers::StageLayers& stage_;
    PipelineShape shape_;
    Lowered result_;
    std::vector<FrameLayout> layouts_;
    BodyBuilder builder_;
    Frames frames_;
    std::vector<Chunk> forwards_;
    BucketSchedule buckets_;
    std::vector<std::uint32_t> numbers_;                      ///< by virtual stage and microbatch
    std::vector<std::shared_ptr<const ChunkGroups>> groups_;  ///< by virtual stage
    std::vector<std::vector<std::uint32_t>> group_base_;      ///< by virtual stage and position
    MegatronManager manager_;
    std::vector<std::vector<Step>> forward_hooks_;
    std::vector<std::vector<Step>> backward_hooks_;
    std::vector<ForwardDecisions> decisions_;  ///< by frame
    std::vector<std::uint32_t> targets_;
    std::unordered_map<std::string, BodyId> bodies_;
    std::unordered_map<std::string, SegmentBodies> segments_;
};

}  // namespace

Lowered lower(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
              types::RuleSet rules, const Durations& durations) {
    STOWAGE_CHECK(microbatches >= 1, "a step has at least one microbatch");
    STOWAGE_CHECK(!stage.chunks.empty(), "a stage has at least one chunk");
    for (const layers::ChunkLayers& chunk : stage.chunks)
        STOWAGE_CHECK(!chunk.order.empty(), "a chunk has at least one frame");
    return Lowering(stage, microbatches, choice, rules, durations).run();
}

}  // namespace stowage::program
