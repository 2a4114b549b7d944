#include "planner/program/stage_lowering.hpp"

#include <algorithm>
#include <utility>

#include "planner/program/megatron_manager.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

bool has_states(const layers::StageLayers& stage, layers::StateBuffer::When when) {
    return std::any_of(stage.states.begin(), stage.states.end(),
                       [when](const layers::StateBuffer& state) { return state.when == when; });
}

}  // namespace

StageLowering::StageLowering(const layers::StageLayers& stage, std::int64_t microbatches,
                             const types::OffloadChoice& choice, types::RuleSet rules, const Durations& durations)
    : stage_(stage),
      shape_(shape_of(stage, microbatches)),
      choice_(choice),
      layouts_(make_layouts(stage, choice)),
      builder_(stage, layouts_, choice, durations, result_.program),
      frames_(stage, microbatches),
      forwards_(forward_chunks(shape_)),
      buckets_(stage, shape_) {
    for (std::size_t i = 0; i < stage_.scripts.size(); ++i) {
        forward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], true));
        backward_hooks_.push_back(hook_steps(stage_.scripts[i], layouts_[i], false));
    }
    manager_ = make_manager(rules);
    decisions_.resize(frames_.persistent());
    backward_done_.resize(frames_.persistent(), false);
    result_.program.pipeline_rank = stage.pipeline_rank;
}

Lowered StageLowering::run() {
    place_frames();
    set_up();
    manager_->begin_record();
    step(RunStage::record);
    if (stage_.graphs.impl == types::CudaGraphImpl::none) {
        manager_->begin_steady();
        step(RunStage::steady);
    } else {
        capture();
    }
    finish_counts();
    return std::move(result_);
}

// ----------------------------------------------------------------------------------------------------------- structure

std::vector<std::shared_ptr<const ChunkGroups>> StageLowering::chunk_groups() {
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

std::unique_ptr<OffloadManager> StageLowering::make_manager(types::RuleSet rules) {
    std::vector<std::shared_ptr<const ChunkGroups>> groups = chunk_groups();
    if (!choice_.free)
        return std::make_unique<MegatronManager>(std::move(groups),
                                                 manager_backward_order(forwards_, shape_.virtual_stages),
                                                 stage_.pipeline_rank, choice_, rules);
    std::vector<std::shared_ptr<const StageGroups>> stages;
    for (std::size_t i = 0; i < stage_.chunks.size(); ++i) stages.push_back(planned_groups(i));
    std::vector<std::shared_ptr<const StageGroups>> of_chunks;
    for (const Chunk chunk : forwards_) of_chunks.push_back(stages[static_cast<std::size_t>(chunk.virtual_stage)]);
    std::vector<std::uint32_t> backwards;
    for (const Chunk chunk : backward_chunks(shape_)) backwards.push_back(number_of(chunk));
    return std::make_unique<StowageManager>(std::move(of_chunks), backwards, *choice_.free,
                                            !stage_.graphs.layers.empty());
}

/// What the choice says of a virtual stage. Frames that run again have no backward hooks.
std::shared_ptr<const StageGroups> StageLowering::planned_groups(std::size_t virtual_stage) const {
    const Chunk chunk{0, static_cast<std::int32_t>(virtual_stage)};
    StageGroups planned;
    for (const GroupSite& site : *groups_[virtual_stage]) {
        const std::int64_t layer = layer_number(chunk, site.position);
        const bool named = layer >= 0 && static_cast<std::size_t>(layer) < choice_.free->by_layer.size();
        planned.leaves.push_back(named && site.bytes > Bytes{0} && span_at(chunk, site.position) == nullptr &&
                                 choice_.free->by_layer[static_cast<std::size_t>(layer)].contains(site.module));
        planned.positions.push_back(site.position);
    }
    for (std::size_t position = positions(chunk); position-- > 0;) {
        if (span_at(chunk, position) != nullptr) continue;
        const std::vector<Hook>& hooks = backward_hooks_[script_at(chunk, position)];
        types::ModuleSet placed;
        for (const layers::StepKind kind : {layers::StepKind::read, layers::StepKind::start})  // groups without bytes
            for (const Hook& hook : hooks) {
                if (hook.kind != kind || placed.contains(hook.module)) continue;
                placed.insert(hook.module);
                planned.backward_order.push_back(group_number(chunk, position, hook.module));
            }
    }
    return std::make_shared<const StageGroups>(std::move(planned));
}

void StageLowering::place_frames() {
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
    place_parameters();
    program.persistent_frames = frames_.persistent();
    add(static_cast<std::uint32_t>(stage_.states.size()), 0);
    add(static_cast<std::uint32_t>(stage_.optimizer.tensors.size()), 0);
    program.graph_frame = frames_.graphs();
    plan_graph_buffers();
    add(static_cast<std::uint32_t>(surfaces_.inputs.size() + surfaces_.gradients.size()) + 1, 1);
    add(0, 0);  // the end
}

/// All microbatches of a layer share its parameters; frames without a layer have none.
void StageLowering::place_parameters() {
    StepProgram& program = result_.program;
    for (std::size_t i = 0; i < stage_.states.size(); ++i)
        if (stage_.states[i].role)
            program.state_slots[static_cast<std::size_t>(*stage_.states[i].role)] = static_cast<std::uint32_t>(i);
    if (stage_.parameter_places.empty()) return;
    program.frame_parameters.assign(frames_.graphs() + 1, 0);
    for (std::size_t stage = 0; stage < stage_.chunks.size(); ++stage) {
        const auto& frames = stage_.parameter_places[stage];
        for (std::size_t position = 0; position < frames.size(); ++position) {
            const auto first = static_cast<std::uint32_t>(program.parameter_places.size());
            program.parameter_places.insert(program.parameter_places.end(), frames[position].begin(),
                                            frames[position].end());
            if (!stage_.fp8_places.empty()) {
                const std::vector<layers::Fp8Place>& copies = stage_.fp8_places[stage][position];
                program.fp8_places.insert(program.fp8_places.end(), copies.begin(), copies.end());
            }
            for (std::int32_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch)
                program.frame_parameters[frames_.layer({microbatch, static_cast<std::int32_t>(stage)}, position)] =
                    first;
        }
    }
}

std::uint32_t StageLowering::group_number(Chunk chunk, std::size_t position, types::Module module) const {
    const auto stage = static_cast<std::size_t>(chunk.virtual_stage);
    return group_base_[stage][position] + layouts_[script_at(chunk, position)].group_index(module);
}

/// The span of recomputed frames that `position` lies in.
const layers::RecomputedSpan* StageLowering::span_at(Chunk chunk, std::size_t position) const {
    for (const layers::RecomputedSpan& span : layers_of(chunk).recomputed)
        if (span.first <= position && position <= span.last) return &span;
    return nullptr;
}

std::uint32_t StageLowering::frame_after(Chunk chunk, std::size_t position) const {
    return position + 1 == positions(chunk) ? frames_.outward(chunk) : frames_.layer(chunk, position + 1);
}

std::uint32_t StageLowering::frame_before(Chunk chunk, std::size_t position) const {
    return position == 0 ? frames_.inward(chunk) : frames_.layer(chunk, position - 1);
}

// ------------------------------------------------------------------------------------------------- the stages of a run

void StageLowering::set_up() {
    stage_of_run_ = RunStage::setup;
    const BodyId setup = body("setup", [&] { return builder_.setup(); });
    add_instance(setup, -1, -1, {frames_.persistent(), frames_.persistent()});
}

void StageLowering::step(RunStage stage) {
    stage_of_run_ = stage;
    const bool first = stage == RunStage::record;
    begin_step(first);
    schedule_steps();
    optimizer(first);
}

void StageLowering::begin_step(bool first) {
    using When = layers::StateBuffer::When;
    if (!has_states(stage_, When::within_steps) && (first || !has_states(stage_, When::between_steps))) return;
    const BodyId id = body(first ? "first begin" : "begin", [&] { return builder_.begin_step(first); });
    add_instance(id, -1, -1, {frames_.optimizer(), frames_.persistent()});
}

void StageLowering::optimizer(bool first) {
    const BodyId optimizer = body(first ? "first optimizer" : "optimizer", [&] { return builder_.optimizer(first); });
    add_instance(optimizer, -1, -1, {frames_.optimizer(), frames_.persistent()});
}

void StageLowering::schedule_steps() {
    std::fill(backward_done_.begin(), backward_done_.end(), false);
    delayed_.clear();
    buckets_.begin_step();
    launch(buckets_.at_step_begin(), 0);
    for (const ScheduleStep& entry : pipeline_schedule(shape_)) {
        if (manager_->chunk_mismatch()) break;
        schedule_step(entry);
    }
    if (buckets_.any_reductions()) await_buckets();
    result_.chunk_mismatch = result_.chunk_mismatch || manager_->chunk_mismatch();
}

void StageLowering::schedule_step(const ScheduleStep& entry) {
    using Kind = ScheduleStep::Kind;
    using Call = BodyBuilder::TransferCall;
    // Interleaved stages whose transfers overlap use single sends and receives, which nothing synchronises; nor does
    // anything inside a capture, where the host cannot wait.
    const bool synchronised = (!interleaved() || !stage_.overlapped_transfers) && stage_of_run_ != RunStage::capture;
    switch (entry.kind) {
        case Kind::forward:
            gather(buckets_.before_chunk(entry.chunk));
            forward(entry.chunk);
            break;
        case Kind::backward:
            backward(entry.chunk);
            launch(buckets_.after_backward(), shape_.microbatches - 1);
            break;
        case Kind::paired:
            gather(buckets_.before_chunk(entry.chunk));
            paired(entry.chunk, entry.other);
            launch(buckets_.after_backward(), shape_.microbatches - 1);
            break;
        case Kind::exchange:
            transfers(entry.transfers, synchronised ? Call::grouped_and_synchronised : Call::grouped);
            break;
        case Kind::post: transfers(entry.transfers, Call::post); break;
        case Kind::await: transfers(entry.transfers, Call::await); break;
    }
}

void StageLowering::launch(const BucketSchedule::Launches& launches, std::int64_t microbatch) {
    for (const layers::OverlappedBucket* bucket : launches) {
        const BodyId id = body(bucket->script.name, [&] { return builder_.bucket(bucket->script); });
        add_instance(id, microbatch, -1, {frames_.optimizer(), frames_.persistent()});
    }
}

void StageLowering::await_buckets() {
    add_instance(body("await buckets", [&] { return builder_.await_buckets(); }), -1, -1, {frames_.optimizer()});
}

void StageLowering::gather(const std::vector<BucketSchedule::Wait>& waits) {
    for (const BucketSchedule::Wait& wait : waits) {
        launch(wait.before, 0);
        await_buckets();
        launch(wait.after, 0);
    }
}

std::uint32_t StageLowering::frame_of(const Transfer& transfer) const {
    switch (transfer.kind) {
        case TransferKind::send_forward: return frames_.outward(transfer.chunk);
        case TransferKind::receive_forward: return frames_.layer(transfer.chunk, 0);
        case TransferKind::send_backward: return frames_.inward(transfer.chunk);
        case TransferKind::receive_backward: return frames_.layer(transfer.chunk, positions(transfer.chunk) - 1);
    }
    return 0;
}

/// Whether what is sent is memory of a graph.
bool StageLowering::sends_static(const Transfer& transfer) const {
    if (!replaying_) return false;
    if (transfer.kind == TransferKind::send_forward)
        return builder_.captures_output(script_at(transfer.chunk, positions(transfer.chunk) - 1));
    return transfer.kind == TransferKind::send_backward && builder_.captures_gradient(script_at(transfer.chunk, 0));
}

void StageLowering::transfers(const std::vector<Transfer>& transfers, BodyBuilder::TransferCall call) {
    std::string key = "transfers " + std::to_string(static_cast<int>(call));
    std::vector<BodyBuilder::TransferPart> parts;
    std::vector<std::uint32_t> scopes;
    for (const Transfer& transfer : transfers) {
        // Plain 1F1B holds a chunk's input in a variable until its gradient is sent.
        const bool release =
            transfer.kind == TransferKind::send_backward && !interleaved() && !input_emptied(transfer.chunk);
        const bool is_static = sends_static(transfer);
        parts.push_back({transfer.kind, release, is_static});
        key += " " + std::to_string(static_cast<int>(transfer.kind)) + (release ? "+" : "") + (is_static ? "s" : "");
        scopes.push_back(frame_of(transfer));
        scopes.push_back(frames_.layer(transfer.chunk, 0));
    }
    const BodyId id = body(key, [&] { return builder_.transfers(parts, call); });
    add_instance(id, transfers.front().chunk.microbatch, -1, scopes);
}

bool StageLowering::input_emptied(Chunk chunk) {
    return builder_.releases_input(script_at(chunk, 0), decisions_[frames_.layer(chunk, 0)]);
}

void StageLowering::finish_counts() {
    for (const auto& [module, name] : types::enum_names<types::Module>())
        result_.counts.table[static_cast<std::size_t>(module)] = manager_->table_bytes(module);
    for (const auto& groups : groups_)
        for (const GroupSite& site : *groups)
            if (site.bytes > Bytes{0}) result_.counts.eligible_groups += shape_.microbatches;
    result_.released_while_saved = builder_.released_while_saved();
    result_.graph_inputs = surfaces_.samples;
    result_.graph_inputs_without_reuse = surfaces_.without_reuse;
    result_.released_static = builder_.released_static();
}

}  // namespace stowage::program
