#include "planner/program/stand_in_operands.hpp"

#include <algorithm>
#include <string>

#include "scenarios/types/error.hpp"

namespace stowage::program {

using layers::Access;
using layers::CallOperand;
using layers::Slot;
using layers::Step;
using layers::StepKind;
using types::Bytes;

namespace {

CallOperand tensor(Slot slot, Access access) {
    return {CallOperand::Kind::tensor, static_cast<std::uint16_t>(slot), access};
}

bool is_boundary(Slot slot) { return slot == layers::kOutput || slot == layers::kGradInput; }

bool contains(const std::vector<Slot>& slots, Slot slot) {
    return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

bool has_input(layers::ScriptKind kind) {
    return kind != layers::ScriptKind::embedding && kind != layers::ScriptKind::optimizer;
}

bool has_gradient(layers::ScriptKind kind) {
    return kind != layers::ScriptKind::head && kind != layers::ScriptKind::optimizer;
}

}  // namespace

OperandFinder::OperandFinder(const layers::LayerScript& script, const layers::LayerGraphs* graphs)
    : script_(script), graphs_(graphs), held_(script.tensors.size()), in_graph_buffer_(script.saved.size(), false) {}

void OperandFinder::begin(const std::vector<Step>& steps, const layers::StepRange* captured) {
    steps_ = &steps;
    captured_ = captured;
    new_.clear();
    unwritten_.clear();
    given_.clear();
    boundary_writer_.reset();
}

void OperandFinder::begin_forward() {
    begin(script_.forward, graphs_ != nullptr ? &graphs_->forward : nullptr);
    if (!has_input(script_.kind) || held_.empty()) return;
    held_[layers::index(layers::kInput)] = {.live = true,
                                            .written = script_.tensors[layers::index(layers::kInput)].bytes()};
    new_.push_back(tensor(layers::kInput, Access::read));
}

void OperandFinder::begin_backward() {
    given_forward_ = given_;
    begin(script_.backward, graphs_ != nullptr ? &graphs_->backward : nullptr);
    backward_ = true;
    for (Held& held : held_) held.live = false;
    if (!has_gradient(script_.kind) || held_.size() < 2) return;
    held_[layers::index(layers::kGradOutput)] = {
        .live = true, .backward = true, .written = script_.tensors[layers::index(layers::kGradOutput)].bytes()};
    new_.push_back(tensor(layers::kGradOutput, Access::read));
}

/// As BodyWriter::graph_inputs says it.
void OperandFinder::begin_graph() {
    const Slot end = backward_ ? script_.graph_gradient : script_.graph_input;
    if (backward_ ? graphs_->takes_gradient : graphs_->takes_input) {
        given_ = {end};
        return;
    }
    for (std::size_t i = 0; i < held_.size(); ++i) {
        const auto slot = static_cast<Slot>(i);
        if (!held_[i].live || held_[i].captured) continue;
        const bool taken = backward_ ? held_[i].backward && (slot != layers::kGradOutput || slot == end)
                                     : slot != end && slot != layers::kInput;
        if (taken) given_.push_back(slot);
    }
}

void OperandFinder::step(const Step& step, std::size_t number) {
    if (captured_ != nullptr && number == captured_->begin && captured_->end > captured_->begin) begin_graph();
    switch (step.kind) {
        case StepKind::allocate: allocate(step.slot, number); break;
        case StepKind::drop:
            if (is_boundary(step.slot)) break;
            held_[layers::index(step.slot)].live = false;
            forget(tensor(step.slot, Access::read));
            std::erase(unwritten_, step.slot);
            break;
        case StepKind::commit:
            if (!backward_) leave(step.module, script_.releases[step.detail]);
            break;
        case StepKind::save:
            if (!backward_)
                in_graph_buffer_[layers::index(step.saved)] =
                    inside(number) && !held_[layers::index(script_.saved[layers::index(step.saved)].tensor)].captured;
            break;
        case StepKind::read:
            if (!script_.tensors[layers::index(script_.saved[layers::index(step.saved)].tensor)].persistent)
                new_.push_back({CallOperand::Kind::saved, static_cast<std::uint16_t>(step.saved), Access::read});
            break;
        case StepKind::forget:
            forget({CallOperand::Kind::saved, static_cast<std::uint16_t>(step.saved), Access::read});
            break;
        default: break;
    }
}

void OperandFinder::allocate(Slot slot, std::size_t number) {
    if (is_boundary(slot)) {
        boundary_writer_ = boundary_writer(number);
        return;
    }
    held_[layers::index(slot)] = {.live = true, .captured = inside(number), .backward = backward_};
    unwritten_.push_back(slot);
}

/// What writes what was allocated by the step `behind` for a neighbour.
std::size_t OperandFinder::boundary_writer(std::size_t behind) const {
    if (const auto kernel = last_kernel(behind)) return *kernel;
    if (const auto collective = awaited_collective(behind)) return *collective;
    throw types::UnsupportedError("error: stand-ins: " + script_.name + ": nothing writes its " +
                                  (backward_ ? "input gradient" : "output") +
                                  ": neither a kernel nor a collective follows the allocation");
}

/// The last kernel behind a step, of those on the same side of a graph if there are any.
std::optional<std::size_t> OperandFinder::last_kernel(std::size_t behind) const {
    std::optional<std::size_t> last;
    bool same_side = false;
    for (std::size_t i = behind; i < steps_->size(); ++i) {
        if ((*steps_)[i].kind != StepKind::kernel) continue;
        const bool same = inside(i) == inside(behind);
        if (same_side && !same) continue;
        last = i;
        same_side = same;
    }
    return last;
}

std::optional<std::size_t> OperandFinder::awaited_collective(std::size_t behind) const {
    for (std::size_t i = steps_->size(); i-- > behind;) {
        const Step& step = (*steps_)[i];
        if (step.kind == StepKind::collective && script_.collectives[step.detail].blocks_main) return i;
    }
    return std::nullopt;
}

/// What a group saved may be copied from here on, and what it releases may be gone.
void OperandFinder::leave(layers::Module module, const std::vector<Slot>& released) {
    for (const layers::SavedTensor& saved : script_.saved) {
        if (saved.group != module || !contains(unwritten_, saved.tensor)) continue;
        held_[layers::index(saved.tensor)].lost = true;
        std::erase(unwritten_, saved.tensor);
    }
    for (const Slot slot : released) {
        if (is_boundary(slot)) continue;
        forget(tensor(slot, Access::read));
        std::erase(unwritten_, slot);
    }
}

void OperandFinder::forget(const CallOperand& operand) { std::erase(new_, operand); }

Slot OperandFinder::slot_of(const CallOperand& operand) const {
    return operand.kind == CallOperand::Kind::saved ? script_.saved[operand.index].tensor
                                                    : static_cast<Slot>(operand.index);
}

bool OperandFinder::may_read(const CallOperand& operand, bool inside) const {
    const Slot slot = slot_of(operand);
    const Held& held = held_[layers::index(slot)];
    if (held.lost || script_.tensors[layers::index(slot)].persistent) return false;
    if (!inside) return operand.kind != CallOperand::Kind::saved || !in_graph_buffer_[operand.index];
    return held.captured || contains(given_, slot) || (backward_ && contains(given_forward_, slot));
}

/// What was written of it; a saved view may be shorter.
Bytes OperandFinder::readable(const CallOperand& operand) const {
    const Bytes written = held_[layers::index(slot_of(operand))].written;
    return operand.kind == CallOperand::Kind::saved ? std::min(written, script_.saved[operand.index].bytes()) : written;
}

bool OperandFinder::has_writes(std::size_t number) const {
    if (boundary_writer_ == number) return true;
    return std::any_of(unwritten_.begin(), unwritten_.end(),
                       [&](Slot slot) { return held_[layers::index(slot)].captured == inside(number); });
}

StandInOperands OperandFinder::take(std::size_t number) {
    StandInOperands taken;
    std::vector<CallOperand> later;
    for (const CallOperand& operand : new_) {
        const bool now = taken.reads.size() < layers::kMostStandInReads && may_read(operand, inside(number)) &&
                         readable(operand) > Bytes{};
        if (now)
            taken.reads.push_back({operand, readable(operand)});
        else
            later.push_back(operand);
    }
    new_ = std::move(later);
    if (boundary_writer_ == number) {
        const Slot slot = backward_ ? layers::kGradInput : layers::kOutput;
        const Slot shape = backward_ ? layers::kInput : layers::kGradOutput;
        taken.writes.push_back({tensor(slot, Access::write), script_.tensors[layers::index(shape)].bytes(), true});
    }
    for (const Slot slot : unwritten_)
        if (taken.writes.size() < layers::kMostStandInWrites && held_[layers::index(slot)].captured == inside(number))
            taken.writes.push_back({tensor(slot, Access::write), script_.tensors[layers::index(slot)].bytes()});
    return taken;
}

void OperandFinder::wrote(const CallOperand& operand, Bytes bytes) {
    const auto slot = static_cast<Slot>(operand.index);
    if (is_boundary(slot)) return;
    std::erase(unwritten_, slot);
    held_[layers::index(slot)].written = bytes;
    if (bytes > Bytes{}) new_.push_back(tensor(slot, Access::read));
}

}  // namespace stowage::program
