#include "executor/engine/interpreter.hpp"

#include <fmt/format.h>

#include "scenarios/types/check.hpp"

namespace stowage::executor {

using layers::Call;
using layers::StowageState;
using program::BufferRef;
using program::Operation;
using program::OperationKind;
using MemoryKind = profiler::MemoryEvent::Kind;

namespace {

/// Whether the device does something for it. Telling the recorder of all others would double its cost.
bool gives_work(OperationKind kind) {
    return kind == OperationKind::compute || kind == OperationKind::copy || kind == OperationKind::collective ||
           kind == OperationKind::peer_transfer || kind == OperationKind::graph_launch;
}

}  // namespace

Interpreter::Interpreter(const program::StepProgram& program, Machine& machine, StepMemory& memory, PinnedLayout layout,
                         Address pinned)
    : program_(program),
      machine_(machine),
      memory_(memory),
      layout_(std::move(layout)),
      pinned_(pinned),
      slots_(program.slot_count()),
      captured_(program.captured_frames.empty() ? 0 : program.slot_count(), 0) {}

void Interpreter::run(program::RunStage stage) {
    stage_ = stage;
    sequence_ = &program_.instances(stage);
    pinned_acquired_ = 0;
    issued_ = 0;
    memory_.begin(stage);
    for (instance_ = 0; instance_ < sequence_->size(); ++instance_) {
        const auto& operations = program_.bodies[program::index(instance().body)].operations;
        for (operation_ = 0; operation_ < operations.size(); ++operation_, ++issued_) {
            if (gives_work(operations[operation_].kind)) machine_.attribute(id(), capturing_);
            execute(operations[operation_]);
        }
    }
    machine_.join_streams();
}

void Interpreter::execute(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::compute: compute(operation); break;
        case OperationKind::copy: copy(operation); break;
        case OperationKind::collective:
            operation.slot != 0 ? compute(operation) : machine_.delay(operation.duration, operation.stream);
            break;
        case OperationKind::peer_transfer: move_to_neighbour(operation); break;
        case OperationKind::event_record:
            machine_.record(event_of(operation), operation.stream, operation.scope == program::kGraphScope);
            break;
        case OperationKind::event_wait: machine_.wait(event_of(operation), operation.stream); break;
        case OperationKind::stream_wait: machine_.wait_stream(operation.stream, operation.other); break;
        case OperationKind::allocate: allocate(operation); break;
        case OperationKind::free: free(operation); break;
        case OperationKind::record_stream: record_stream(operation); break;
        case OperationKind::pinned_acquire: acquire_pinned(operation); break;
        case OperationKind::pinned_release: held(operation) = {}; break;
        case OperationKind::stream_sync: machine_.synchronise(operation.stream); break;
        case OperationKind::device_sync: machine_.synchronise_all(); break;
        case OperationKind::graph_begin: begin_graph(); break;
        case OperationKind::graph_end: end_graph(); break;
        case OperationKind::graph_launch: machine_.launch_graph(instance().graph, operation.stream); break;
        case OperationKind::empty_cache: memory_.empty_cache(); break;
    }
}

// ---------------------------------------------------------------------------------------------------- work and copies

void Interpreter::compute(const Operation& operation) {
    const program::Work& work = work_of(operation);
    resolve(work);
    if (work.call == Call::clear && before_clear_ && !capturing_) before_clear_();
    if (capturing_) count_node(work.call);
    machine_.compute(work, addresses_, operation.stream, place());
}

/// What a call puts into the graph at least: a kernel, or what the runtime does by itself.
void Interpreter::count_node(Call call) {
    const bool by_runtime = call == Call::copy || call == Call::clear || call == Call::keep_rows;
    if (!by_runtime) ++expected_.kernels;
}

void Interpreter::copy(const Operation& operation) {
    if (program::is_read_by_host(operation)) return machine_.read_by_host(operation.bytes, operation.stream);
    const program::Work& work = work_of(operation);
    resolve(work);
    if (capturing_) ++expected_.copies;
    if (operation.direction == program::Direction::device_to_host)
        tell(MemoryKind::offloaded, {addresses_[0], operation.bytes, 0});
    machine_.copy(operation.direction, addresses_[0], addresses_[1], operation.bytes, operation.stream);
}

/// The neighbour is not there: its time is waited for, and what would have come from it is made up.
void Interpreter::move_to_neighbour(const Operation& operation) {
    machine_.delay(operation.duration, operation.stream);
    if (operation.slot == 0) return;
    const program::Work& work = work_of(operation);
    resolve(work);
    machine_.compute(work, addresses_, operation.stream, place());
}

const program::Work& Interpreter::work_of(const Operation& operation) const {
    STOWAGE_CHECK(operation.slot != 0 && operation.slot < program_.works.size(),
                  where(operation) + ": the program does not say what it computes");
    return program_.works[operation.slot];
}

void Interpreter::resolve(const program::Work& work) {
    addresses_.clear();
    for (const BufferRef& buffer : work.buffers) addresses_.push_back(resolve(buffer, work.sizes));
}

Address Interpreter::resolve(const BufferRef& buffer, const layers::CallSizes& sizes) const {
    switch (buffer.space) {
        case BufferRef::Space::frame: return frame_address(buffer);
        case BufferRef::Space::parameter: return parameter_address(buffer, 2);
        case BufferRef::Space::gradient:
            return parameter_address(buffer, sizes.gradient_type == types::DataType::fp32 ? 4 : 2);
        case BufferRef::Space::state: {
            const Address address = state(static_cast<StowageState>(buffer.slot));
            STOWAGE_CHECK(address != 0, fmt::format("operation {}: the rank has no state {}", operation_, buffer.slot));
            return address;
        }
        case BufferRef::Space::fp8_weight:
        case BufferRef::Space::fp8_transposed_weight:
        case BufferRef::Space::fp8_weight_scales: return fp8_address(buffer);
        case BufferRef::Space::graph_input:
            return lasting_address(program_.graph_frame, graph().inputs_begin + buffer.slot);
        case BufferRef::Space::graph_gradient:
            return lasting_address(program_.graph_frame, graph().gradients_begin + buffer.slot);
    }
    return 0;
}

Address Interpreter::lasting_address(std::uint32_t frame, std::uint32_t slot) const {
    const std::uint32_t number = program_.frame_slots[frame] + slot;
    STOWAGE_CHECK(number < program_.frame_slots[frame + 1] && !slots_[number].empty(),
                  fmt::format("operation {}: slot {} of frame {} holds nothing", operation_, slot, frame));
    return slots_[number].buffer.address;
}

/// What is not there was made by the layer's graph, whose memory lies in the frame that was captured. Captures free
/// what they are done with, for each other; replays still write there.
Address Interpreter::frame_address(const BufferRef& buffer) const {
    const std::uint32_t frame = frame_of(buffer.scope);
    const Held& own = slots_[program_.frame_slots[frame] + buffer.slot];
    if (!own.empty()) return own.buffer.address;
    const bool replays = !capturing_ && frame < program_.captured_frames.size();
    const Address graphs =
        replays ? captured_[program_.frame_slots[program_.captured_frames[frame]] + buffer.slot] : Address{};
    STOWAGE_CHECK(graphs != 0, fmt::format("instance {} of stage {}, operation {}: slot {} of frame {} holds nothing",
                                           instance_, static_cast<int>(stage_), operation_, buffer.slot, frame));
    return graphs;
}

Address Interpreter::parameter_address(const BufferRef& buffer, std::int64_t element_bytes) const {
    const std::int64_t place =
        program_.parameter_places[program_.frame_parameters[frame_of(buffer.scope)] + buffer.slot];
    const bool gradient = buffer.space == BufferRef::Space::gradient;
    const Address base = state(gradient ? StowageState::gradients : StowageState::parameters);
    return base + static_cast<Address>(place * element_bytes);
}

Address Interpreter::fp8_address(const BufferRef& buffer) const {
    const layers::Fp8Place& place =
        program_.fp8_places.at(program_.frame_parameters[frame_of(buffer.scope)] + buffer.slot);
    std::int64_t offset = place.scales;
    if (buffer.space == BufferRef::Space::fp8_weight) offset = place.plain;
    if (buffer.space == BufferRef::Space::fp8_transposed_weight) offset = place.transposed;
    STOWAGE_CHECK(offset >= 0, fmt::format("operation {}: parameter {} has no FP8 copy", operation_, buffer.slot));
    return state(StowageState::fp8_weights) + static_cast<Address>(offset);
}

// -------------------------------------------------------------------------------------------------------------- memory

void Interpreter::allocate(const Operation& operation) {
    Held& slot = held(operation);
    STOWAGE_CHECK(slot.empty(), where(operation) + ": allocated twice");
    slot = {memory_.allocate(operation.bytes, operation.stream), operation.stream, false, false};
    tell(MemoryKind::allocate, slot.buffer);
    if (stage_ == program::RunStage::capture && !captured_.empty())
        captured_[program_.frame_slots[frame_of(operation.scope)] + operation.slot] = slot.buffer.address;
    if (!capturing_) machine_.allocated(slot.buffer.address, operation.bytes, operation.stream);
}

void Interpreter::free(const Operation& operation) {
    Held& slot = held(operation);
    STOWAGE_CHECK(!slot.empty(), where(operation) + ": frees what holds nothing");
    if (!capturing_)
        machine_.freed(slot.buffer.address, slot.buffer.bytes,
                       slot.used_elsewhere || slot.stream != program::Stream::main);
    tell(MemoryKind::free, slot.buffer);
    memory_.free(slot.buffer);
    slot = {};
}

void Interpreter::tell(MemoryKind kind, const Buffer& buffer) const {
    if (on_memory_ && !capturing_) on_memory_(kind, id(), buffer);
}

void Interpreter::record_stream(const Operation& operation) {
    Held& slot = held(operation);
    STOWAGE_CHECK(!slot.empty(), where(operation) + ": tells of a use of what holds nothing");
    slot.used_elsewhere = slot.used_elsewhere || operation.stream != program::Stream::main;
    memory_.record_stream(slot.buffer, operation.stream);
}

void Interpreter::acquire_pinned(const Operation& operation) {
    const Bytes offset = layout_.offset(stage_, pinned_acquired_++);
    held(operation) = {
        {pinned_ + static_cast<Address>(offset.count), operation.bytes, 0}, program::Stream::main, false, true};
}

const Interpreter::Held* Interpreter::held_state(StowageState state) const {
    const auto& slot = program_.state_slots[static_cast<std::size_t>(state)];
    return slot ? &slots_[program_.frame_slots[program_.persistent_frames] + *slot] : nullptr;
}

Address Interpreter::state(StowageState state) const {
    const Held* held = held_state(state);
    return held != nullptr ? held->buffer.address : 0;
}

Bytes Interpreter::state_bytes(StowageState state) const {
    const Held* held = held_state(state);
    return held != nullptr ? held->buffer.bytes : Bytes{};
}

// -------------------------------------------------------------------------------------------------------------- graphs

void Interpreter::begin_graph() {
    STOWAGE_CHECK(!capturing_, "a graph is captured inside another");
    machine_.synchronise_all();
    memory_.begin_capture();
    machine_.begin_capture(instance().graph);
    capturing_ = true;
    expected_ = {};
}

void Interpreter::end_graph() {
    STOWAGE_CHECK(capturing_, "a graph ends that was not begun");
    const CapturedNodes captured = machine_.end_capture();
    memory_.end_capture();
    capturing_ = false;
    STOWAGE_CHECK(
        captured.copies >= expected_.copies && captured.kernels >= expected_.kernels,
        fmt::format("graph {} holds {} kernels and {} copies; the program put {} and {} into it", instance().graph,
                    captured.kernels, captured.copies, expected_.kernels, expected_.copies));
}

// -------------------------------------------------------------------------------------------------------------- places

std::uint32_t Interpreter::frame_of(program::Scope scope) const {
    if (scope == program::kGraphScope) return program_.graph_frame;
    return program_.scope_frames[instance().frames_begin + scope];
}

Interpreter::Held& Interpreter::held(const Operation& operation) {
    return slots_[program_.frame_slots[frame_of(operation.scope)] + operation.slot];
}

std::uint32_t Interpreter::event_of(const Operation& operation) const {
    return program_.frame_events[frame_of(operation.scope)] + operation.slot;
}

std::string Interpreter::where(const Operation& operation) const {
    const std::string& body = program_.bodies[program::index(instance().body)].name;
    const bool labelled = operation.kind == OperationKind::compute || operation.kind == OperationKind::copy;
    return fmt::format("{}, operation {} ({}{})", body, operation_, program::name_of(operation.kind),
                       labelled ? " " + program_.labels[operation.detail] : "");
}

}  // namespace stowage::executor
