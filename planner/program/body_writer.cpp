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

/// Expert tensors have varying shapes and bypass Megatron's pinned pool.
bool pooled(types::Module module) {
    return module != types::Module::expert_fc1 && module != types::Module::moe_act &&
           module != types::Module::fused_group_mlp;
}

std::uint32_t slot_number(Slot slot) { return static_cast<std::uint32_t>(slot); }

}  // namespace

BodyWriter::BodyWriter(BodyBuilder& builder, const layers::LayerScript& script, const FrameLayout& layout)
    : builder_(builder),
      script_(script),
      layout_(layout),
      references_(script_.tensors.size(), 0),
      emptied_(script_.tensors.size(), false),
      held_(script_.saved.size(), false),
      read_inline_(script_.saved.size(), false) {}

void BodyWriter::emit(Operation operation) {
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
    emptied_[layers::index(slot)] = false;
    emit({.kind = OperationKind::allocate, .slot = slot_number(slot), .bytes = tensor.bytes()});
}

void BodyWriter::drop(Slot slot) {
    const layers::Tensor& tensor = script_.tensors[layers::index(slot)];
    if (tensor.persistent) return;
    int& references = references_[layers::index(slot)];
    STOWAGE_CHECK(references > 0, script_.name + ": dropped and not held: " + tensor.name);
    if (--references == 0 && !emptied_[layers::index(slot)])
        emit({.kind = OperationKind::free, .slot = slot_number(slot), .bytes = tensor.bytes()});
}

void BodyWriter::kernel(const layers::Step& step) {
    const layers::Kernel& kernel = script_.kernels[step.detail];
    emit({.kind = OperationKind::compute,
          .kernel_class = kernel.kind,
          .detail = builder_.label(kernel.name),
          .duration = builder_.durations().kernel(kernel, step.phase)});
}

void BodyWriter::collective(const layers::Collective& collective) {
    const Nanoseconds duration = builder_.durations().collective(collective);
    if (duration == Nanoseconds{0}) return;  // a group of one rank launches nothing
    const Stream stream = stream_of(collective.group);
    const std::size_t begin = operations_.size();
    emit({.kind = OperationKind::stream_wait, .stream = stream, .other = Stream::main});
    emit({.kind = OperationKind::collective,
          .stream = stream,
          .detail = builder_.label(collective.name),
          .bytes = collective.bytes,
          .duration = duration});
    if (collective.blocks_main)
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = stream});
    else if (std::find(posted_.begin(), posted_.end(), stream) == posted_.end())
        posted_.push_back(stream);
    if (layers::is_token_exchange(collective) && !silent_) exchanges_.push_back({begin, operations_.size()});
}

void BodyWriter::join_collectives() {
    for (const Stream stream : posted_)
        emit({.kind = OperationKind::stream_wait, .stream = Stream::main, .other = stream});
    posted_.clear();
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
        case StepKind::host_sync: emit({.kind = OperationKind::stream_sync, .stream = Stream::main}); break;
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

// ------------------------------------------------------------------------------------------------------------ forward

void BodyWriter::forward(const ForwardDecisions& decisions, bool silent) {
    silent_ = silent;
    offloaded_ = decisions.offloaded;
    recomputing_ = decisions.pass == Pass::recomputing && !silent;
    if (script_.kind != layers::ScriptKind::embedding)
        references_[layers::index(layers::kInput)] = decisions.input_held ? 2 : 1;
    for (const layers::Step& step : script_.forward) {
        common_step(step);
        if (decisions.pass == Pass::discarding) continue;  // nothing is saved, no group is open
        if (step.kind == StepKind::commit) commit_forward(step, decisions);
        if (step.kind != StepKind::save) continue;
        const Slot tensor = script_.saved[layers::index(step.saved)].tensor;
        held_[layers::index(step.saved)] = true;
        if (!script_.tensors[layers::index(tensor)].persistent) ++references_[layers::index(tensor)];
    }
    silent_ = false;
    recomputing_ = false;
    if (decisions.pass == Pass::discarding) check_all_freed(decisions.input_held);
}

void BodyWriter::commit_forward(const layers::Step& step, const ForwardDecisions& decisions) {
    if (!layout_.has_group(step.module) || decisions.unmanaged.contains(step.module)) return;
    emit({.kind = OperationKind::stream_wait, .stream = Stream::d2h, .other = Stream::main, .module = step.module});
    if (!decisions.offloaded.contains(step.module)) return;
    for (const layers::SavedIndex saved : layout_.movable(step.module)) offload(saved, step.module);
    emit({.kind = OperationKind::event_record,
          .stream = Stream::d2h,
          .module = step.module,
          .slot = layout_.offload_event(step.module)});
    for (const Slot slot : script_.releases[step.detail]) release(slot, step.module);
}

void BodyWriter::offload(layers::SavedIndex saved_index, types::Module module) {
    const layers::SavedTensor& saved = script_.saved[layers::index(saved_index)];
    const std::uint32_t temporary = layout_.reload_slot(saved_index);
    const bool gathered = saved.form == layers::CopyForm::gathered;
    emit({.kind = OperationKind::pinned_acquire,
          .module = module,
          .slot = layout_.pinned_slot(saved_index),
          .detail = pooled(module) ? builder_.pinned_key(saved.bytes(), saved.type) : 0,
          .bytes = saved.bytes()});
    if (gathered) {
        emit({.kind = OperationKind::allocate, .stream = Stream::d2h, .slot = temporary, .bytes = saved.bytes()});
        emit({.kind = OperationKind::compute,
              .stream = Stream::d2h,
              .kernel_class = types::KernelClass::memory_bound,
              .module = module,
              .detail = builder_.label("gather " + saved.name),
              .duration = builder_.durations().gather(saved.bytes())});
    }
    emit({.kind = OperationKind::copy,
          .stream = Stream::d2h,
          .direction = Direction::device_to_host,
          .module = module,
          .detail = builder_.label("offload " + saved.name),
          .bytes = saved.bytes(),
          .duration = builder_.durations().copy(Direction::device_to_host, saved.bytes())});
    if (gathered) emit({.kind = OperationKind::free, .stream = Stream::d2h, .slot = temporary, .bytes = saved.bytes()});
    held_[layers::index(saved_index)] = false;
    if (script_.tensors[layers::index(saved.tensor)].persistent) return;
    if (!emptied_[layers::index(saved.tensor)])
        emit({.kind = OperationKind::record_stream, .stream = Stream::d2h, .slot = slot_number(saved.tensor)});
    drop(saved.tensor);
}

// Other references to the storage, the schedule's own among them, do not keep it: it is resized to nothing.
void BodyWriter::release(Slot slot, types::Module module) {
    const std::size_t number = layers::index(slot);
    const layers::Tensor& tensor = script_.tensors[number];
    if (tensor.persistent || emptied_[number] || references_[number] == 0) return;
    if (!layout_.releasable(script_, slot, module)) return;
    for (std::size_t i = 0; i < script_.saved.size(); ++i)
        if (script_.saved[i].tensor == slot && held_[i]) released_while_saved_ = true;
    emptied_[number] = true;
    emit({.kind = OperationKind::record_stream, .stream = Stream::main, .slot = slot_number(slot)});
    emit({.kind = OperationKind::free, .slot = slot_number(slot), .bytes = tensor.bytes()});
}

// ----------------------------------------------------------------------------------------------------------- backward

bool BodyWriter::moved(layers::SavedIndex saved) const {
    const auto& group = script_.saved[layers::index(saved)].group;
    return group && offloaded_.contains(*group) && layout_.is_movable(saved);
}

void BodyWriter::backward(const ForwardDecisions& forward_decisions, const BackwardDecisions& decisions) {
    if (script_.kind != layers::ScriptKind::head) references_[layers::index(layers::kGradOutput)] = 1;
    for (const layers::Step& step : script_.backward) {
        common_step(step);
        const bool hooked = layout_.has_group(step.module) && !forward_decisions.unmanaged.contains(step.module);
        if (step.kind == StepKind::commit && hooked)
            if (const auto& awaited = decisions.waits[static_cast<std::size_t>(step.module)])
                emit({.kind = OperationKind::event_wait,
                      .module = awaited->module,
                      .scope = awaited->scope,
                      .slot = builder_.layout(awaited->script).reload_event(awaited->module)});
        if (step.kind == StepKind::start && hooked) {
            emit({.kind = OperationKind::stream_wait,
                  .stream = Stream::h2d,
                  .other = Stream::main,
                  .module = step.module});
            const auto& target = decisions.targets[static_cast<std::size_t>(step.module)];
            if (target) start_backward(*target);
        }
        if (step.kind == StepKind::read) read(step.saved, decisions);
        if (step.kind == StepKind::forget) forget(step.saved, decisions);
    }
    check_all_freed(forward_decisions.input_held);
}

void BodyWriter::start_backward(const ReloadTarget& target) {
    const layers::LayerScript& script = builder_.stage().scripts[target.script];
    const FrameLayout& layout = builder_.layout(target.script);
    emit({.kind = OperationKind::event_wait,
          .stream = Stream::h2d,
          .module = target.module,
          .scope = target.scope,
          .slot = layout.offload_event(target.module)});
    if (!target.empty)
        for (const layers::SavedIndex saved : layout.movable(target.module))
            reload(script, layout, saved, target.module, Stream::h2d, target.scope);
    emit({.kind = OperationKind::event_record,
          .stream = Stream::h2d,
          .module = target.module,
          .scope = target.scope,
          .slot = layout.reload_event(target.module)});
}

void BodyWriter::reload(const layers::LayerScript& script, const FrameLayout& layout, layers::SavedIndex saved_index,
                        types::Module module, Stream stream, Scope scope) {
    const layers::SavedTensor& saved = script.saved[layers::index(saved_index)];
    emit({.kind = OperationKind::allocate,
          .stream = stream,
          .module = module,
          .scope = scope,
          .slot = layout.reload_slot(saved_index),
          .bytes = saved.bytes()});
    emit({.kind = OperationKind::copy,
          .stream = stream,
          .direction = Direction::host_to_device,
          .module = module,
          .scope = scope,
          .detail = builder_.label("reload " + saved.name),
          .bytes = saved.bytes(),
          .duration = builder_.durations().copy(Direction::host_to_device, saved.bytes())});
    emit({.kind = OperationKind::pinned_release,
          .module = module,
          .scope = scope,
          .slot = layout.pinned_slot(saved_index),
          .bytes = saved.bytes()});
}

void BodyWriter::read(layers::SavedIndex saved, const BackwardDecisions& decisions) {
    const std::size_t number = layers::index(saved);
    if (!moved(saved) || read_inline_[number]) return;
    const types::Module module = *script_.saved[number].group;
    if (!decisions.inline_read.contains(module)) return;
    read_inline_[number] = true;
    reload(script_, layout_, saved, module, Stream::main, kOwnFrame);
}

void BodyWriter::forget(layers::SavedIndex saved, const BackwardDecisions& decisions) {
    const std::size_t number = layers::index(saved);
    if (!moved(saved)) {
        held_[number] = false;
        const Slot tensor = script_.saved[number].tensor;
        if (!script_.tensors[layers::index(tensor)].persistent) drop(tensor);
        return;
    }
    const types::Module module = *script_.saved[number].group;
    if (decisions.inline_read.contains(module) && !read_inline_[number]) {
        emit({.kind = OperationKind::pinned_release,
              .module = module,
              .slot = layout_.pinned_slot(saved),
              .bytes = script_.saved[number].bytes()});
        return;
    }
    emit({.kind = OperationKind::free, .slot = layout_.reload_slot(saved), .bytes = script_.saved[number].bytes()});
}

void BodyWriter::check_all_freed(bool input_held) const {
    for (std::size_t i = 0; i < references_.size(); ++i) {
        const int kept = input_held && i == layers::index(layers::kInput) ? 1 : 0;
        STOWAGE_CHECK(references_[i] == kept, script_.name + ": left allocated: " + script_.tensors[i].name);
    }
}

}  // namespace stowage::program
