// The stages of a run under CUDA graphs.
//
// Layer by layer (Transformer Engine, local): after the warm-up iterations the captured part of every layer is captured
// once for each chunk, in the order of the schedule, or with one pipeline stage for the first microbatch only, whose
// policy all others then follow. While that goes on the manager is asked about the groups inside graphs; in the steady
// step only about those outside. A group of experts that is delayed is committed behind the launch of the next layer's
// graph; what is still queued at the end of the step stays.
//
// The whole iteration: everything from the first forward to the last backward, transfers included, is captured once and
// launched as one graph; the optimizer follows eagerly.
//
// Source: Megatron-LM main of August 2026, core/transformer/cuda_graphs.py, core/full_cuda_graph.py,
// core/pipeline_parallel/fine_grained_activation_offload.py, re-described.

#include <algorithm>
#include <set>

#include "planner/layers/layer_graphs.hpp"
#include "planner/program/stage_lowering.hpp"

namespace stowage::program {
namespace {

using types::CudaGraphImpl;
using types::Module;

bool is_node(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::compute:
        case OperationKind::copy:
        case OperationKind::collective:
        case OperationKind::peer_transfer: return true;
        case OperationKind::event_record: return operation.scope == kGraphScope;  // the external one
        default: return false;
    }
}

}  // namespace

bool StageLowering::delays(std::size_t script, Module module) const {
    const bool experts = module == Module::expert_fc1 || module == Module::moe_act;
    const bool replays = stage_.graphs.impl == CudaGraphImpl::transformer_engine && graphed(script);
    return choice_.delay_until_cuda_graph && !choice_.free && experts && replays && !stage_.paired_chunks;
}

bool StageLowering::input_static(Chunk chunk, std::size_t position) const {
    return replaying_ && position > 0 && builder_.captures_output(script_at(chunk, position - 1));
}

bool StageLowering::gradient_static(Chunk chunk, std::size_t position) const {
    return replaying_ && position + 1 < positions(chunk) && builder_.captures_gradient(script_at(chunk, position + 1));
}

/// With one pipeline stage every microbatch replays the first one's graphs.
std::uint32_t StageLowering::captured_frame(Chunk chunk, std::size_t position) const {
    if (shape_.ranks == 1) chunk.microbatch = 0;
    return frames_.layer(chunk, position);
}

// ------------------------------------------------------------------------------------------------------------- capture

void StageLowering::capture() {
    if (stage_.graphs.warmup_steps > 1) {
        manager_->begin_steady();
        step(RunStage::eager);
    }
    manager_->begin_steady();
    stage_of_run_ = RunStage::capture;
    if (stage_.graphs.impl == CudaGraphImpl::full_iteration) {
        capture_iteration();
        replay_iteration();
        return;
    }
    capture_layers();
    manager_->begin_steady();
    replaying_ = true;
    step(RunStage::steady);
}

/// The buffers of all graphs' inputs, known before frames are placed.
void StageLowering::plan_graph_buffers() {
    std::vector<std::vector<GraphSurface>> surfaces;
    for (const layers::ChunkLayers& chunk : stage_.chunks) {
        surfaces.emplace_back();
        for (std::size_t position = 0; position < chunk.order.size(); ++position) {
            const layers::LayerGraphs* graphs = builder_.graphs_of(chunk.order[position]);
            if (graphs == nullptr) continue;
            GraphSurface surface = builder_.graph_surface(chunk.order[position]);
            if (input_in_place(chunk, position)) surface.inputs.clear();
            if (gradient_in_place(chunk, position)) surface.gradients.clear();
            if (layers::takes_mask(stage_.scripts[chunk.order[position]], *graphs) &&
                stage_.graphs.impl == CudaGraphImpl::transformer_engine && stage_.graphs.attention_mask > Bytes{0})
                surface.inputs.push_back(stage_.graphs.attention_mask);
            surfaces.back().push_back(std::move(surface));
        }
    }
    const bool reuse = stage_.graphs.impl == CudaGraphImpl::transformer_engine;
    surfaces_ = plan_surfaces(capture_order(shape_), surfaces, reuse);
}

/// Between two local graphs nothing is copied: the output of one is the input of the next, unless that begins inside
/// its layer.
bool StageLowering::input_in_place(const layers::ChunkLayers& chunk, std::size_t position) const {
    if (stage_.graphs.impl != CudaGraphImpl::local || position == 0) return false;
    const layers::LayerScript& script = stage_.scripts[chunk.order[position]];
    return builder_.graphs_of(chunk.order[position])->takes_input && script.graph_input == layers::kInput &&
           builder_.captures_output(chunk.order[position - 1]);
}

bool StageLowering::gradient_in_place(const layers::ChunkLayers& chunk, std::size_t position) const {
    if (stage_.graphs.impl != CudaGraphImpl::local || position + 1 >= chunk.order.size()) return false;
    const layers::LayerScript& script = stage_.scripts[chunk.order[position]];
    return builder_.graphs_of(chunk.order[position])->takes_gradient && script.graph_gradient == layers::kGradOutput &&
           builder_.captures_gradient(chunk.order[position + 1]);
}

/// Every microbatch's frames look for memory of graphs in those of the captured one.
void StageLowering::place_captured_frames() {
    std::vector<std::uint32_t>& frames = result_.program.captured_frames;
    frames.resize(frames_.persistent());
    for (std::size_t stage = 0; stage < stage_.chunks.size(); ++stage)
        for (std::int64_t microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
            const Chunk chunk{static_cast<std::int32_t>(microbatch), static_cast<std::int32_t>(stage)};
            for (std::size_t position = 0; position < positions(chunk) + 2; ++position)
                frames[frames_.layer(chunk, position)] = captured_frame(chunk, position);
        }
}

void StageLowering::prepare_capture() {
    const BodyId prepare = body("prepare capture", [&] {
        Body made{"prepare capture", {}};
        made.operations.push_back({.kind = OperationKind::device_sync, .part = layers::Part::graph});
        made.operations.push_back({.kind = OperationKind::empty_cache, .part = layers::Part::graph});
        std::uint32_t slot = 0;
        for (const auto* buffers : {&surfaces_.inputs, &surfaces_.gradients})
            for (const Bytes bytes : *buffers)
                made.operations.push_back(
                    {.kind = OperationKind::allocate, .part = layers::Part::graph, .slot = slot++, .bytes = bytes});
        return made;
    });
    add_instance(prepare, -1, -1, {frames_.graphs()});
}

void StageLowering::begin_graph() {
    StepProgram& program = result_.program;
    graph_ = static_cast<std::uint32_t>(program.graphs.size());
    const auto next = static_cast<std::uint32_t>(program.instances(RunStage::capture).size());
    program.graphs.push_back({next, next, 0, 1});
    if (graph_ >= surfaces_.buffers.size()) return;  // the whole iteration's reads what the host gives it
    const GraphBuffers& buffers = surfaces_.buffers[graph_];
    program.graphs.back().inputs_begin = buffers.inputs;
    program.graphs.back().gradients_begin = static_cast<std::uint32_t>(surfaces_.inputs.size()) + buffers.gradients;
}

void StageLowering::end_graph() {
    StepProgram& program = result_.program;
    Graph& graph = program.graphs.back();
    const std::vector<Instance>& captured = program.instances(RunStage::capture);
    graph.end = static_cast<std::uint32_t>(captured.size());
    std::set<Stream> streams{Stream::main};
    for (std::uint32_t i = graph.begin; i < graph.end; ++i) {
        for (const Operation& operation : program.bodies[index(captured[i].body)].operations) {
            if (!is_node(operation)) continue;
            ++graph.nodes;
            streams.insert(operation.stream);
        }
    }
    graph.branches = static_cast<std::uint32_t>(streams.size());
}

void StageLowering::capture_layers() {
    captured_decisions_.resize(frames_.persistent());
    forward_graphs_.resize(frames_.persistent(), 0);
    backward_graphs_.resize(frames_.persistent(), 0);
    std::fill(backward_done_.begin(), backward_done_.end(), false);
    prepare_capture();
    place_captured_frames();
    for (const CapturedPass& pass : capture_order(shape_)) {
        if (manager_->chunk_mismatch()) break;
        pass.forward ? capture_forward(pass.chunk) : capture_backward(pass.chunk);
    }
    result_.chunk_mismatch = result_.chunk_mismatch || manager_->chunk_mismatch();
}

void StageLowering::capture_forward(Chunk chunk) {
    for (std::size_t position = 0; position < positions(chunk); ++position) {
        const std::size_t script = script_at(chunk, position);
        if (builder_.graphs_of(script) == nullptr) continue;
        const std::uint32_t frame = frames_.layer(chunk, position);
        ForwardDecisions& decisions = captured_decisions_[frame];
        decisions.side = Side::captured;
        decisions.input_static = input_in_place(layers_of(chunk), position);
        decisions.gradient_static = gradient_in_place(layers_of(chunk), position);
        targets_.clear();
        decide_forward(chunk, position, decisions, 0, kAllSteps);
        begin_graph();
        forward_graphs_[frame] = graph_;
        forward_layer(chunk, position, decisions);
        end_graph();
    }
}

void StageLowering::capture_backward(Chunk chunk) {
    for (std::size_t position = positions(chunk); position-- > 0;)
        if (builder_.graphs_of(script_at(chunk, position)) != nullptr) capture_backward_layer(chunk, position);
}

void StageLowering::capture_backward_layer(Chunk chunk, std::size_t position) {
    const std::size_t script = script_at(chunk, position);
    const std::uint32_t frame = frames_.layer(chunk, position);
    const ForwardDecisions& forward_decisions = captured_decisions_[frame];
    targets_ = {frame_after(chunk, position), last_gradient_frame_.value_or(frame)};
    BackwardDecisions decisions = decide_backward(chunk, position, forward_decisions);
    decisions.frees_previous_gradient = last_gradient_frame_.has_value();
    begin_graph();
    backward_graphs_[frame] = graph_;
    const BodyId id = body(body_key(script, forward_decisions, &decisions),
                           [&] { return builder_.backward(script, forward_decisions, decisions); });
    add_instance(id, chunk.microbatch, layer_number(chunk, position),
                 with_targets(frame, frame_before(chunk, position)));
    end_graph();
    last_gradient_frame_.reset();
    if (builder_.captures_gradient(script)) last_gradient_frame_ = frame_before(chunk, position);
}

// ------------------------------------------------------------------------------------------------------ whole
// iteration

void StageLowering::capture_iteration() {
    prepare_capture();
    const auto mark = [&](const char* name, OperationKind kind) {
        const BodyId id = body(name, [&] { return Body{name, {{.kind = kind, .part = layers::Part::graph}}}; });
        add_instance(id, -1, -1, {frames_.graphs()});
    };
    begin_graph();
    mark("begin of the iteration's graph", OperationKind::graph_begin);
    schedule_steps();
    end_graph();
    mark("end of the iteration's graph", OperationKind::graph_end);
}

void StageLowering::replay_iteration() {
    stage_of_run_ = RunStage::steady;
    begin_step(false);
    const BodyId id = body("iteration graph", [&] {
        return Body{"iteration graph",
                    {{.kind = OperationKind::graph_launch,
                      .part = layers::Part::graph,
                      .detail = builder_.label("iteration graph")}}};
    });
    add_instance(id, -1, -1, {frames_.graphs()});
    optimizer(false);
}

// ------------------------------------------------------------------------------------------------- around layers'
// graphs

void StageLowering::forward_around_graph(Chunk chunk, std::size_t position, ForwardDecisions& decisions) {
    const std::size_t script = script_at(chunk, position);
    const layers::StepRange& captured = builder_.graphs_of(script)->forward;
    decisions.side = Side::outside;
    targets_.clear();
    decide_forward(chunk, position, decisions, 0, captured.begin);
    const std::vector<std::uint32_t> before = targets_;
    const std::vector<Flush> flushes = commit_delayed();
    targets_ = before;
    decide_forward(chunk, position, decisions, captured.end, kAllSteps);
    const SegmentBodies bodies = segment_bodies("around " + body_key(script, decisions, nullptr),
                                                [&] { return builder_.forward_around_graph(script, decisions); });
    const std::vector<std::uint32_t> scopes =
        with_targets(frames_.layer(chunk, position), frame_after(chunk, position));
    graph_ = forward_graphs_[captured_frame(chunk, position)];
    add_instance(*bodies[0], chunk.microbatch, layer_number(chunk, position), scopes);
    for (const Flush& flush : flushes)
        add_instance(flush.body, flush.chunk.microbatch, layer_number(flush.chunk, flush.position), flush.scopes);
    if (bodies[1]) add_instance(*bodies[1], chunk.microbatch, layer_number(chunk, position), scopes);
    if (!decisions.delayed.empty()) delayed_.push_back({chunk, position});
}

/// What was delayed by the layers before is committed now. A group whose backward has been has nothing left to move.
std::vector<StageLowering::Flush> StageLowering::commit_delayed() {
    std::vector<Flush> flushes;
    for (const Delayed& layer : delayed_) {
        const std::size_t script = script_at(layer.chunk, layer.position);
        const std::uint32_t frame = frames_.layer(layer.chunk, layer.position);
        ForwardDecisions late;
        ForwardDecisions& decisions = backward_done_[frame] ? late : decisions_[frame];
        targets_.clear();
        for (const Module module : decisions_[frame].delayed.list())
            commit(layer.chunk, layer.position, module, decisions);
        if (backward_done_[frame]) continue;
        const BodyId id = body("delayed " + body_key(script, decisions, nullptr),
                               [&] { return builder_.delayed_commits(script, decisions); });
        flushes.push_back(
            {id, layer.chunk, layer.position, with_targets(frame, frame_after(layer.chunk, layer.position))});
    }
    delayed_.clear();
    return flushes;
}

}  // namespace stowage::program
