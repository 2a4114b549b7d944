#include "tests/planner/layers/replay.hpp"

namespace stowage::layers::testing {

Replay::Replay(const StageLayers& stage) {
    for (std::size_t script : stage.chunks.front().order) frames_.push_back(&stage.scripts[script]);
    if (frames_.front()->kind != ScriptKind::embedding) allocate({0, kInput});
}

Replay::Replay(const LayerScript& script) {
    frames_.push_back(&script);
    if (script.kind != ScriptKind::embedding) allocate({0, kInput});
}

void Replay::forward() {
    for (std::size_t frame = 0; frame < frames_.size(); ++frame) run(frame, frames_[frame]->forward);
}

/// On a stage without the head the next stage sends the gradient, and the output has been sent and let go.
void Replay::backward() {
    const std::size_t last = frames_.size() - 1;
    if (frames_[last]->kind != ScriptKind::head) {
        drop({last + 1, kInput});
        allocate({last, kGradOutput});
    }
    for (std::size_t frame = frames_.size(); frame-- > 0;) run(frame, frames_[frame]->backward);
    if (frames_.front()->kind != ScriptKind::embedding) drop(resolve(0, kGradInput));
}

std::vector<std::string> Replay::alive() const {
    std::vector<std::string> names;
    for (const auto& [id, storage] : storages_) names.push_back(storage.name);
    return names;
}

Replay::Id Replay::resolve(std::size_t frame, Slot slot) const {
    if (slot == kOutput) return {frame + 1, kInput};
    if (slot == kGradInput) return {frame - 1, kGradOutput};
    return {frame, slot};
}

Bytes Replay::size_of(Id id) const {
    const auto& [frame, slot] = id;
    if (frame == frames_.size()) return frames_.back()->tensors[index(kGradOutput)].bytes();  // the stage's output
    if (frame > frames_.size()) return frames_.front()->tensors[index(kInput)].bytes();       // the stage's gradient
    return frames_[frame]->tensors[index(slot)].bytes();
}

void Replay::allocate(Id id) {
    const auto& [frame, slot] = id;
    const bool inside = frame < frames_.size();
    const std::string name = inside ? std::to_string(frame) + ":" + frames_[frame]->tensors[index(slot)].name : "edge";
    const auto [place, is_new] = storages_.insert({id, {name, size_of(id), 1, 0}});
    if (!is_new) return faults_.push_back("allocated twice: " + name);
    live_ += place->second.bytes;
    peak_ = std::max(peak_, live_);
}

void Replay::drop(Id id) {
    const auto found = storages_.find(id);
    if (found == storages_.end() || found->second.variables == 0)
        return faults_.push_back("dropped without being held: frame " + std::to_string(id.first) + " slot " +
                                 std::to_string(index(id.second)));
    --found->second.variables;
    release(id);
}

void Replay::release(Id id) {
    const auto found = storages_.find(id);
    if (found->second.variables + found->second.saves > 0) return;
    live_ -= found->second.bytes;
    storages_.erase(found);
}

void Replay::run(std::size_t frame, const std::vector<Step>& steps) {
    for (const Step& step : steps) run_step(frame, step);
}

void Replay::run_step(std::size_t frame, const Step& step) {
    if (step.kind == StepKind::allocate) return allocate(resolve(frame, step.slot));
    if (step.kind == StepKind::drop) return drop(resolve(frame, step.slot));
    const bool touches_saved =
        step.kind == StepKind::save || step.kind == StepKind::read || step.kind == StepKind::forget;
    if (!touches_saved) return;
    const SavedTensor& saved = frames_[frame]->saved[index(step.saved)];
    if (frames_[frame]->tensors[index(saved.tensor)].persistent) return;  // somebody else's
    const Id id = resolve(frame, saved.tensor);
    const auto found = storages_.find(id);
    if (found == storages_.end()) return fault(frame, "saved, read or forgotten after it was freed: " + saved.name);
    if (step.kind == StepKind::save) ++found->second.saves;
    if (step.kind == StepKind::forget) {
        --found->second.saves;
        release(id);
    }
}

void Replay::fault(std::size_t frame, const std::string& what) {
    faults_.push_back(frames_[frame]->name + ": " + what);
}

}  // namespace stowage::layers::testing
