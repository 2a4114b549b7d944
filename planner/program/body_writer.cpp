#include "planner/program/body_writer.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

using layers::Slot;
using layers::StepKind;

Stream stream_of(layers::CommGroup group) {
    switch (group) {
        case layers::CommGroup::tensor:
        case layers::CommGroup::context:
        case layers::CommGroup::expert:
        case layers::CommGroup::expert_tensor:
        case layers::CommGroup::expert_and_tensor: return Stream::communication;
        case layers::CommGroup::dense_replicas:
        case layers::CommGroup::expert_replicas:
        case layers::CommGroup::embedding: return Stream::gradient_communication;
    }
    return Stream::communication;
}

std::uint32_t slot_number(Slot slot) { return static_cast<std::uint32_t>(slot); }

bool computes(const layers::LayerScript& script) {
    return std::any_of(script.kernels.begin(), script.kernels.end(),
                       [](const layers::Kernel& kernel) { return kernel.call.call != layers::Call::none; });
}

}  // namespace

BodyWriter::BodyWriter(BodyBuilder& builder, const layers::LayerScript& script, const FrameLayout& layout)
    : builder_(builder),
      script_(script),
      layout_(layout),
      references_(script_.tensors.size(), 0),
      emptied_(script_.tensors.size(), false),
      held_(script_.saved.size(), false),
      read_inline_(script_.saved.size(), false),
      owners_(script_.tensors.size(), Owner::eager),
      variable_(script_.tensors.size(), false),
      made_in_backward_(script_.tensors.size(), false),
      counted_(script_.saved.size(), false),
      has_work_(computes(script_)) {}

void BodyWriter::use_graphs(const layers::LayerGraphs& graphs, bool hooks) {
    graphs_ = &graphs;
    hooks_ = hooks;
}

void BodyWriter::emit(Operation operation) {
    if (!hidden_) emit_always(operation);
}

void BodyWriter::emit_always(Operation operation) {
    if (silent_) return;
    operation.part = part_;
    operation.phase = phase_;
    operations_.push_back(operation);
}

void BodyWriter::allocate(Slot slot) {
    if (slot == layers::kOutput || slot == layers::kGradInput) {
        const bool output = slot == layers::kOutput;
        const Slot theirs = output ? layers::kInput : layers::kGradOutput;
        const Slot ours = output ? layers::kGradOutput : layers::kInput;  // the same shape, as this script declares it
        if (output && inside_) output_captured_ = true;
        emit({.kind = OperationKind::allocate,
              .scope = kNeighbourFrame,
              .slot = slot_number(theirs),
              .bytes = script_.tensors[layers::index(ours)].bytes()});
        return;
    }
    const layers::Tensor& tensor = script_.tensors[layers::index(slot)];
    STOWAGE_CHECK(!tensor.persistent, script_.name + ": allocates a weight: " + tensor.name);
    STOWAGE_CHECK(references_[layers::index(slot)] == 0, script_.name + ": allocated twice: " + tensor.name);
    references_[layers::index(slot)] = 1;
    variable_[layers::index(slot)] = true;
    owners_[layers::index(slot)] = inside_ ? Owner::graph : Owner::eager;
    made_in_backward_[layers::index(slot)] = backward_;
    emptied_[layers::index(slot)] = false;
    emit({.kind = OperationKind::allocate, .slot = slot_number(slot), .bytes = tensor.bytes()});
}

void BodyWriter::drop(Slot slot) {
    const layers::Tensor& tensor = script_.tensors[layers::index(slot)];
    if (tensor.persistent) return;
    variable_[layers::index(slot)] = false;
    unreference(slot);
}

void BodyWriter::unreference(Slot slot) {
    int& references = references_[layers::index(slot)];
    STOWAGE_CHECK(references > 0,
                  script_.name + ": dropped and not held: " + script_.tensors[layers::index(slot)].name);
    if (--references == 0 && !emptied_[layers::index(slot)]) free_memory(slot);
}

/// The last reference is gone. What the graph made goes in the capture only; what outlives the captured steps there is
/// held until the end of the backward's capture. What a neighbour's graph made is not this layer's to free.
void BodyWriter::free_memory(Slot slot) {
    const Operation free{
        .kind = OperationKind::free, .slot = slot_number(slot), .bytes = script_.tensors[layers::index(slot)].bytes()};
    const Owner owner = owners_[layers::index(slot)];
    if (side_ != Side::captured) {
        if (owner == Owner::eager) emit_always(free);
        return;
    }
    if (owner != Owner::graph) return;
    if (inside_)
        emit(free);
    else if (!silent_)
        after_capture_.push_back(free);
}

/// Whether the body that is written allocates and frees the tensor.
bool BodyWriter::movable_memory(Slot slot) const {
    return owners_[layers::index(slot)] == (side_ == Side::captured ? Owner::graph : Owner::eager);
}

void BodyWriter::kernel(const layers::Step& step) {
    const layers::Kernel& kernel = script_.kernels[step.detail];
    emit({.kind = OperationKind::compute,
          .kernel_class = kernel.kind,
          .launches = static_cast<std::uint16_t>(std::min<std::int64_t>(kernel.launches, UINT16_MAX)),
          .slot = work_of(kernel.call),
          .detail = builder_.label(kernel.name),
          .duration = builder_.durations().kernel(kernel, step.phase)});
}

/// Silent and hidden steps leave no work in the program.
std::uint32_t BodyWriter::work_of(const layers::KernelCall& call) {
    if (call.call == layers::Call::none || silent_ || hidden_) return 0;
    Work work{call.call, call.sizes, {}};
    for (const layers::CallOperand& operand : call.operands) work.buffers.push_back(buffer_of(operand));
    return builder_.work(std::move(work));
}

BufferRef BodyWriter::buffer_of(const layers::CallOperand& operand) const {
    using Kind = layers::CallOperand::Kind;
    using Space = BufferRef::Space;
    BufferRef buffer{Space::frame, kOwnFrame, operand.access, operand.index};
    switch (operand.kind) {
        case Kind::tensor: buffer = buffer_of(static_cast<Slot>(operand.index)); break;
        case Kind::saved: {
            const auto saved = static_cast<layers::SavedIndex>(operand.index);
            buffer = buffer_of(script_.saved[operand.index].tensor);
            if (moved(saved)) buffer = {.slot = layout_.reload_slot(saved)};
            break;
        }
        case Kind::parameter: buffer.space = Space::parameter; break;
        case Kind::gradient: buffer.space = Space::gradient; break;
        case Kind::state: buffer.space = Space::state; break;
        case Kind::fp8_weight: buffer.space = Space::fp8_weight; break;
        case Kind::fp8_transposed_weight: buffer.space = Space::fp8_transposed_weight; break;
        case Kind::fp8_weight_scales: buffer.space = Space::fp8_weight_scales; break;
    }
    buffer.access = operand.access;
    return buffer;
}

/// What stand-ins are not told the place of: a tensor that the module holds.
bool BodyWriter::is_weight(Slot slot) const {
    if (!builder_.stage().stand_ins || slot == layers::kOutput || slot == layers::kGradInput) return false;
    return script_.tensors[layers::index(slot)].persistent;
}

/// What a layer makes for its neighbour lies in that one's frame; what a graph is given, in its own buffers.
BufferRef BodyWriter::buffer_of(Slot slot) const {
    if (is_weight(slot))  // somewhere among them
        return {.space = BufferRef::Space::state, .slot = static_cast<std::uint32_t>(layers::StowageState::parameters)};
    if (has_work_ && side_ == Side::captured && inside_)
        if (const std::optional<BufferRef> given = given_to_graph(slot)) return *given;
    if (slot == layers::kOutput) return {.scope = kNeighbourFrame, .slot = slot_number(layers::kInput)};
    if (slot == layers::kGradInput) return {.scope = kNeighbourFrame, .slot = slot_number(layers::kGradOutput)};
    return {.slot = slot_number(slot)};
}

std::uint32_t BodyWriter::copy_work(BufferRef from, BufferRef to, Bytes bytes) {
    if (!has_work_ || silent_ || hidden_) return 0;
    to.access = layers::Access::write;
    return builder_.work({layers::Call::copy, {.rows = bytes.count}, {from, to}});
}

void BodyWriter::collective(const layers::Collective& collective) {
    const Nanoseconds duration = builder_.durations().collective(collective);
    if (duration == Nanoseconds{0}) return;  // a group of one rank launches nothing
    const Stream stream = stream_of(collective.group);
    const std::size_t begin = operations_.size();
    emit({.kind = OperationKind::stream_wait, .stream = stream, .other = Stream::main});
    emit({.kind = OperationKind::collective,
          .stream = stream,
          .slot = work_of(collective.call),
          .detail = builder_.label(collective.name),
          .bytes = collective.bytes,
          .duration = duration});
    if (collective.blocks_main)
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = stream});
    else if (std::find(posted_.begin(), posted_.end(), stream) == posted_.end())
        posted_.push_back(stream);
    if (layers::is_token_exchange(collective) && !silent_ && !hidden_)
        exchanges_.push_back({begin, operations_.size()});
}

void BodyWriter::join_collectives() {
    for (const Stream stream : posted_)
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = stream});
    posted_.clear();
}

/// What the host reads comes by the engine that groups leave by, and queues there.
void BodyWriter::host_sync(Bytes copied) {
    if (copied > Bytes{0})
        emit({.kind = OperationKind::copy,
              .stream = Stream::main,
              .direction = Direction::device_to_host,
              .detail = builder_.label("read by the host"),
              .bytes = copied,
              .duration = builder_.durations().copy(Direction::device_to_host, copied)});
    emit({.kind = OperationKind::stream_sync, .stream = Stream::main});
}

void BodyWriter::common_step(const layers::Step& step) {
    part_ = step.part;
    phase_ = recomputing_ && step.phase == layers::Phase::forward ? layers::Phase::recompute : step.phase;
    switch (step.kind) {
        case StepKind::allocate: allocate(step.slot); break;
        case StepKind::drop: drop(step.slot); break;
        case StepKind::kernel: kernel(step); break;
        case StepKind::collective: collective(script_.collectives[step.detail]); break;
        case StepKind::join_collectives: join_collectives(); break;
        case StepKind::host_sync: host_sync(Bytes{step.detail}); break;
        default: break;
    }
}

void BodyWriter::plain_steps(const std::vector<layers::Step>& steps) {
    for (const layers::Step& step : steps) common_step(step);
    check_all_freed(false);
}

void BodyWriter::state(const layers::StateBuffer& buffer, std::uint32_t slot, Scope scope) {
    if (buffer.on_host()) return;  // no device memory
    emit({.kind = OperationKind::allocate, .scope = scope, .slot = slot, .bytes = buffer.bytes});
}

void BodyWriter::free_state(const layers::StateBuffer& buffer, std::uint32_t slot, Scope scope) {
    emit({.kind = OperationKind::free, .scope = scope, .slot = slot, .bytes = buffer.bytes});
}

// ------------------------------------------------------------------------------------------------------------ forward

void BodyWriter::forward(const ForwardDecisions& decisions, bool silent) {
    silent_ = silent;
    offloaded_ = decisions.offloaded;
    recomputing_ = decisions.pass == Pass::recomputing && !silent;
    side_ = decisions.side;
    backward_ = false;
    if (script_.kind != layers::ScriptKind::embedding) {
        references_[layers::index(layers::kInput)] = decisions.input_held ? 2 : 1;
        variable_[layers::index(layers::kInput)] = true;
        if (decisions.input_static) owners_[layers::index(layers::kInput)] = Owner::neighbour;
    }
    for (std::size_t i = 0; i < script_.forward.size(); ++i) {
        const layers::Step& step = script_.forward[i];
        if (graphs_ != nullptr) enter_step(graphs_->forward, i);
        common_step(step);
        if (decisions.pass == Pass::discarding) continue;  // nothing is saved, no group is open
        if (step.kind == StepKind::commit && !decisions.delayed.contains(step.module) &&
            !decisions.not_committed.contains(step.module))
            commit_forward(step, decisions);
        if (step.kind == StepKind::save) save(step.saved);
        if (graphs_ != nullptr && side_ == Side::captured && i + 1 == graphs_->forward.end) forward_captured();
    }
    inside_ = hidden_ = false;
    if (silent && !decisions.delayed.empty()) delayed_commits(decisions);
    silent_ = false;
    recomputing_ = false;
    if (decisions.pass == Pass::discarding) check_all_freed(decisions.input_held);
}

/// A tensor that the graph does not own is copied into its buffer, and it is that which is saved inside the graph.
void BodyWriter::save(layers::SavedIndex saved) {
    const Slot tensor = script_.saved[layers::index(saved)].tensor;
    held_[layers::index(saved)] = true;
    if (script_.tensors[layers::index(tensor)].persistent) return;
    const bool buffer = side_ != Side::all && inside_ && owners_[layers::index(tensor)] != Owner::graph;
    counted_[layers::index(saved)] = !buffer;
    if (!buffer) ++references_[layers::index(tensor)];
}

void BodyWriter::delayed_commits(const ForwardDecisions& decisions) {
    for (const layers::Step& step : script_.forward) {
        if (step.kind != StepKind::commit || !decisions.delayed.contains(step.module)) continue;
        part_ = step.part;
        phase_ = step.phase;
        commit_forward(step, decisions);
    }
}

// ----------------------------------------------------------------------------------------------------------- backward

void BodyWriter::backward(const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions) {
    backward_ = true;
    if (script_.kind != layers::ScriptKind::head) {
        references_[layers::index(layers::kGradOutput)] = 1;
        variable_[layers::index(layers::kGradOutput)] = true;
        made_in_backward_[layers::index(layers::kGradOutput)] = true;
        if (forward_decisions.gradient_static) owners_[layers::index(layers::kGradOutput)] = Owner::neighbour;
    }
    for (std::size_t i = 0; i < script_.backward.size(); ++i) {
        const layers::Step& step = script_.backward[i];
        if (graphs_ != nullptr) enter_step(graphs_->backward, i);
        common_step(step);
        if (layout_.has_group(step.module) && !forward_decisions.unmanaged.contains(step.module))
            backward_hook(step, decisions);
        if (step.kind == StepKind::read) read(step.saved, decisions);
        if (step.kind == StepKind::forget) forget(step.saved, decisions);
        if (graphs_ != nullptr && side_ == Side::captured && i + 1 == graphs_->backward.end)
            backward_captured(decisions);
    }
    inside_ = hidden_ = false;
    operations_.insert(operations_.end(), after_capture_.begin(), after_capture_.end());
    check_all_freed(forward_decisions.input_held);
}

void BodyWriter::check_all_freed(bool input_held) const {
    for (std::size_t i = 0; i < references_.size(); ++i) {
        if (side_ == Side::captured && owners_[i] != Owner::graph) continue;  // not this body's
        const int kept = input_held && i == layers::index(layers::kInput) ? 1 : 0;
        STOWAGE_CHECK(references_[i] == kept, script_.name + ": left allocated: " + script_.tensors[i].name);
    }
}

}  // namespace stowage::program
