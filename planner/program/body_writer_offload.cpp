// The part of BodyWriter that moves groups: what hooks of the forward and the backward emit.

#include <algorithm>

#include "planner/program/body_writer.hpp"

namespace stowage::program {
namespace {

using layers::Slot;
using layers::StepKind;

/// Expert tensors have varying shapes and bypass Megatron's pinned pool.
bool pooled(types::Module module) {
    return module != types::Module::expert_fc1 && module != types::Module::moe_act &&
           module != types::Module::fused_group_mlp;
}

std::uint32_t slot_number(Slot slot) { return static_cast<std::uint32_t>(slot); }

}  // namespace

// ------------------------------------------------------------------------------------------------------------ forward

void BodyWriter::commit_forward(const layers::Step& step, const ForwardDecisions& decisions) {
    if (!layout_.has_group(step.module) || decisions.unmanaged.contains(step.module)) return;
    const bool leaves = decisions.offloaded.contains(step.module);
    if (leaves || !builder_.planned())
        emit({.kind = OperationKind::stream_wait, .stream = Stream::d2h, .other = Stream::main, .module = step.module});
    if (leaves)
        for (const layers::SavedIndex saved : layout_.movable(step.module)) offload(saved, step.module);
    if (side_ != Side::captured) {  // inside a capture nobody waits for it
        if (leaves)
            emit({.kind = OperationKind::event_record,
                  .stream = Stream::d2h,
                  .module = step.module,
                  .slot = layout_.offload_event(step.module)});
        if (const auto& joined = decisions.joins[static_cast<std::size_t>(step.module)]) join(*joined);
    }
    if (!leaves) return;
    for (const Slot slot : script_.releases[step.detail]) release(slot, step.module);
}

void BodyWriter::join(const ReloadTarget& joined) {
    emit({.kind = OperationKind::event_wait,
          .module = joined.module,
          .scope = joined.scope,
          .slot = builder_.layout(joined.script).offload_event(joined.module)});
}

void BodyWriter::offload(layers::SavedIndex saved_index, types::Module module) {
    const layers::SavedTensor& saved = script_.saved[layers::index(saved_index)];
    const std::uint32_t temporary = layout_.reload_slot(saved_index);
    const bool gathered = saved.form == layers::CopyForm::gathered;
    if (gathered) {
        emit({.kind = OperationKind::allocate, .stream = Stream::d2h, .slot = temporary, .bytes = saved.bytes()});
        emit({.kind = OperationKind::compute,
              .stream = Stream::d2h,
              .kernel_class = types::KernelClass::memory_bound,
              .module = module,
              .slot = copy_work(buffer_of(saved.tensor), {.slot = temporary}, saved.bytes()),
              .detail = builder_.label("gather " + saved.name),
              .duration = builder_.durations().gather(saved.bytes())});
    }
    emit({.kind = OperationKind::pinned_acquire,
          .module = module,
          .slot = layout_.pinned_slot(saved_index),
          .detail = pooled(module) ? builder_.pinned_key(saved.shape, saved.type) : 0,
          .bytes = saved.bytes()});
    emit({.kind = OperationKind::copy,
          .stream = Stream::d2h,
          .direction = Direction::device_to_host,
          .module = module,
          .slot = copy_work(gathered ? BufferRef{.slot = temporary} : buffer_of(saved.tensor),
                            {.slot = layout_.pinned_slot(saved_index)}),
          .detail = builder_.label("offload " + saved.name),
          .bytes = saved.bytes(),
          .duration = builder_.durations().copy(Direction::device_to_host, saved.bytes())});
    if (gathered) emit({.kind = OperationKind::free, .stream = Stream::d2h, .slot = temporary, .bytes = saved.bytes()});
    held_[layers::index(saved_index)] = false;
    if (script_.tensors[layers::index(saved.tensor)].persistent || !counted_[layers::index(saved_index)]) return;
    if (!emptied_[layers::index(saved.tensor)] && movable_memory(saved.tensor))
        emit({.kind = OperationKind::record_stream, .stream = Stream::d2h, .slot = slot_number(saved.tensor)});
    unreference(saved.tensor);
}

// Other references to the storage, the schedule's own among them, do not keep it: it is resized to nothing.
void BodyWriter::release(Slot slot, types::Module module) {
    const std::size_t number = layers::index(slot);
    const layers::Tensor& tensor = script_.tensors[number];
    if (tensor.persistent || emptied_[number]) return;
    // A delayed commit still lists what nobody else holds by then: freed with the last reference, or a graph's.
    if (references_[number] == 0 && owners_[number] == Owner::eager) return;
    if (!layout_.releasable(script_, slot, module)) return;
    const bool is_output = std::find(outputs_.begin(), outputs_.end(), slot) != outputs_.end();
    if (!movable_memory(slot) || is_output) {
        released_static_ = released_static_ || (!hidden_ && !builder_.planned());
        return;
    }
    if (references_[number] == 0) return;
    for (std::size_t i = 0; i < script_.saved.size(); ++i) {
        if (script_.saved[i].tensor != slot || !held_[i]) continue;
        if (builder_.planned()) return;  // a group that is kept, or copied later, needs it
        released_while_saved_ = true;
    }
    emptied_[number] = true;
    emit({.kind = OperationKind::record_stream, .stream = Stream::main, .slot = slot_number(slot)});
    emit({.kind = OperationKind::free, .slot = slot_number(slot), .bytes = tensor.bytes()});
}

// ----------------------------------------------------------------------------------------------------------- backward

bool BodyWriter::moved(layers::SavedIndex saved) const {
    const auto& group = script_.saved[layers::index(saved)].group;
    return group && offloaded_.contains(*group) && layout_.is_movable(saved);
}

/// The backward's part of a group's commit and start.
void BodyWriter::backward_hook(const layers::Step& step, const BackwardDecisions& decisions) {
    const auto module = static_cast<std::size_t>(step.module);
    if (builder_.planned()) {
        if (step.kind == StepKind::commit || step.kind == StepKind::start)
            planned_hook(step.kind, step.module, decisions);
        return;
    }
    if (step.kind == StepKind::commit && decisions.waits[module]) await_reload(*decisions.waits[module]);
    if (step.kind != StepKind::start) return;
    emit({.kind = OperationKind::stream_wait, .stream = Stream::h2d, .other = Stream::main, .module = step.module});
    if (decisions.targets[module]) start_backward(*decisions.targets[module]);
}

void BodyWriter::await_reload(const ReloadTarget& awaited) {
    emit({.kind = OperationKind::event_wait,
          .module = awaited.module,
          .scope = awaited.scope,
          .slot = builder_.layout(awaited.script).reload_event(awaited.module)});
}

/// Reloads wait for what the main stream has done so far: they may take the memory it let go.
void BodyWriter::planned_hook(layers::StepKind kind, types::Module module, const BackwardDecisions& decisions) {
    for (const PlannedHook& hook : decisions.planned) {
        if (hook.kind != kind || hook.module != module) continue;
        for (const ReloadTarget& joined : hook.joins) join(joined);
        if (hook.reloads.empty()) continue;
        emit({.kind = OperationKind::stream_wait, .stream = Stream::h2d, .other = Stream::main, .module = module});
        for (const ReloadTarget& target : hook.reloads) start_backward(target);
    }
}

void BodyWriter::start_backward(const ReloadTarget& target) {
    const layers::LayerScript& script = builder_.stage().scripts[target.script];
    const FrameLayout& layout = builder_.layout(target.script);
    if (side_ != Side::captured)
        emit({.kind = OperationKind::event_wait,
              .stream = Stream::h2d,
              .module = target.module,
              .scope = target.scope,
              .slot = layout.offload_event(target.module)});
    if (!target.empty)
        for (const layers::SavedIndex saved : layout.movable(target.module))
            reload(script, layout, saved, target.module, Stream::h2d, target.scope);
    if (side_ != Side::captured || builder_.planned())
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
          .slot = copy_work({.scope = scope, .slot = layout.pinned_slot(saved_index)},
                            {.scope = scope, .slot = layout.reload_slot(saved_index)}),
          .detail = builder_.label("reload " + saved.name),
          .bytes = saved.bytes(),
          .duration = builder_.durations().copy(Direction::host_to_device, saved.bytes())});
    if (!builder_.planned()) release_pinned(layout, saved_index, saved.bytes(), module, stream, scope);
}

void BodyWriter::release_pinned(const FrameLayout& layout, layers::SavedIndex saved, Bytes bytes, types::Module module,
                                Stream stream, Scope scope) {
    emit({.kind = OperationKind::pinned_release,
          .stream = stream,
          .module = module,
          .scope = scope,
          .slot = layout.pinned_slot(saved),
          .bytes = bytes});
}

void BodyWriter::read(layers::SavedIndex saved, const BackwardDecisions& decisions) {
    const std::size_t number = layers::index(saved);
    if (builder_.planned()) return planned_read(saved, decisions);
    if (!moved(saved) || read_inline_[number]) return;
    const types::Module module = *script_.saved[number].group;
    if (!decisions.inline_read.contains(module)) return;
    read_inline_[number] = true;
    reload(script_, layout_, saved, module, Stream::main, kOwnFrame);
}

/// The first read of a group: what is ordered there, and the wait for its reload. Its pinned memory is free from here
/// on: a copy that is issued later waits for the main stream, and that has waited for the reload.
void BodyWriter::planned_read(layers::SavedIndex saved, const BackwardDecisions& decisions) {
    if (!layout_.is_movable(saved)) return;
    const types::Module module = *script_.saved[layers::index(saved)].group;
    if (begun_.contains(module)) return;
    begun_.insert(module);
    planned_hook(StepKind::read, module, decisions);
    if (const auto& awaited = decisions.waits[static_cast<std::size_t>(module)]) await_reload(*awaited);
    if (!offloaded_.contains(module)) return;
    for (const layers::SavedIndex moved_entry : layout_.movable(module))
        release_pinned(layout_, moved_entry, script_.saved[layers::index(moved_entry)].bytes(), module, Stream::main,
                       kOwnFrame);
}

void BodyWriter::forget(layers::SavedIndex saved, const BackwardDecisions& decisions) {
    const std::size_t number = layers::index(saved);
    if (!moved(saved)) {
        held_[number] = false;
        const Slot tensor = script_.saved[number].tensor;
        if (!script_.tensors[layers::index(tensor)].persistent && counted_[number]) unreference(tensor);
        return;
    }
    const types::Module module = *script_.saved[number].group;
    if (decisions.inline_read.contains(module) && !read_inline_[number]) {
        emit({.kind = OperationKind::pinned_release,
              .stream = Stream::d2h,
              .module = module,
              .slot = layout_.pinned_slot(saved),
              .bytes = script_.saved[number].bytes()});
        return;
    }
    emit({.kind = OperationKind::free, .slot = layout_.reload_slot(saved), .bytes = script_.saved[number].bytes()});
}

}  // namespace stowage::program
