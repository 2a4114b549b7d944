#include "executor/engine/raw_steps.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

using layers::Part;
using profiler::OperationNumber;
using program::Operation;
using program::OperationKind;
using program::RunStage;

constexpr unsigned kStepShift = 56;  // between an instance's number and the bit of captures
constexpr OperationNumber kStepMask = OperationNumber{kMostRecordedSteps} << kStepShift;

bool is_transfer(const Operation& operation) {
    return operation.kind == OperationKind::copy || operation.kind == OperationKind::pinned_acquire ||
           operation.kind == OperationKind::pinned_release;
}

std::string module_of(const Operation& operation) {
    return std::string(is_transfer(operation) ? types::name_of(operation.module) : layers::name_of(operation.part));
}

bool has_label(const Operation& operation) {
    return operation.kind == OperationKind::compute || operation.kind == OperationKind::copy ||
           operation.kind == OperationKind::collective || operation.kind == OperationKind::peer_transfer;
}

std::string work_of(const program::StepProgram& program, const Operation& operation) {
    if (has_label(operation) && operation.detail < program.labels.size()) return program.labels[operation.detail];
    return std::string(program::name_of(operation.kind));
}

/// Parts of the model behind its last layer.
bool is_behind_layers(Part part) {
    return part == Part::final_norm || part == Part::output_layer || part == Part::loss || part == Part::mtp;
}

}  // namespace

OperationNumber in_step(OperationNumber number, std::uint32_t step) {
    STOWAGE_CHECK(step <= kMostRecordedSteps, "a recording has at most 63 steps behind its first");
    return without_step(number) | (OperationNumber{step} << kStepShift);
}

std::uint32_t step_of(OperationNumber number) { return static_cast<std::uint32_t>((number & kStepMask) >> kStepShift); }

OperationNumber without_step(OperationNumber number) { return number & ~kStepMask; }

std::vector<profiler::Recording> split_steps(const profiler::Recording& recording, std::uint32_t steps) {
    profiler::Recording empty = recording;
    empty.activities.clear();
    std::vector<profiler::Recording> split(steps, empty);
    std::vector<profiler::Activity> activities = recording.activities;
    std::stable_sort(activities.begin(), activities.end(),
                     [](const auto& left, const auto& right) { return left.start < right.start; });
    std::uint32_t step = 0;
    for (profiler::Activity& activity : activities) {
        if (activity.issued_under == kBetweenSteps) continue;
        if (activity.issued_under != profiler::kNoOperation) {
            step = step_of(activity.issued_under);
            activity.issued_under = without_step(activity.issued_under);
        }
        if (step < steps) split[step].activities.push_back(activity);
    }
    return split;
}

OperationMarks::OperationMarks(const program::StepProgram& program, const layers::StageLayers& layers)
    : program_(program), last_chunk_(static_cast<std::int32_t>(layers.chunks.size()) - 1) {
    for (std::size_t chunk = 0; chunk < layers.chunks.size(); ++chunk)
        for (const std::int64_t layer : layers.chunks[chunk].layer_numbers)
            if (layer >= 0) chunks_[static_cast<std::int32_t>(layer)] = static_cast<std::int32_t>(chunk);
}

profiler::Mark OperationMarks::of(RunStage stage, OperationNumber number) const {
    const OperationId id = operation_of(without_step(number));
    const auto& instances = program_.instances(is_captured(number) ? RunStage::capture : stage);
    STOWAGE_CHECK(id.instance < instances.size(), "what was recorded was issued by the program");
    const program::Instance& instance = instances[id.instance];
    const Operation& operation = program_.bodies[program::index(instance.body)].operations.at(id.operation);
    profiler::Mark mark;
    mark.module = module_of(operation);
    mark.phase = layers::name_of(operation.phase);
    mark.work = work_of(program_, operation);
    mark.layer = instance.layer;
    mark.microbatch = instance.microbatch;
    const auto chunk = chunks_.find(instance.layer);
    mark.chunk = chunk != chunks_.end() ? chunk->second : is_behind_layers(operation.part) ? last_chunk_ : 0;
    return mark;
}

void OperationMarks::resolve(RunStage stage, profiler::RawStep& step) const {
    const auto add = [&](OperationNumber number) {
        if (number == profiler::kNoOperation) return;
        const auto [entry, is_new] = step.marks.try_emplace(number);
        if (is_new) entry->second = of(stage, number);
    };
    for (const profiler::Activity& activity : step.activities.activities) {
        add(activity.issued_under);
        const auto node = step.activities.node_operations.find(activity.graph_node);
        if (activity.graph_node != 0 && node != step.activities.node_operations.end()) add(node->second);
    }
    for (const profiler::MemoryEvent& event : step.memory) add(event.issued_under);
}

}  // namespace stowage::executor
