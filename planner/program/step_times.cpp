#include "planner/program/step_times.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace stowage::program {
namespace {

using Interval = std::pair<types::SimTime, types::SimTime>;

bool is_delay(const Operation& operation) {
    return operation.kind == OperationKind::collective || operation.kind == OperationKind::peer_transfer;
}

bool computes(const Operation& operation, Stream stream) {
    return operation.kind == OperationKind::compute && (stream == Stream::main || stream == Stream::graph);
}

/// The time that the intervals cover together.
Nanoseconds covered(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end());
    Nanoseconds sum{0};
    types::SimTime until{};
    for (const auto& [begin, end] : intervals) {
        const types::SimTime from = std::max(begin, until);
        if (end > from) sum += end - from;
        until = std::max(until, end);
    }
    return sum;
}

std::vector<Interval> together(std::vector<Interval> one, const std::vector<Interval>& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
}

}  // namespace

const Operation* operation_of(const StepProgram& program, const TimelineEntry& entry) {
    const auto& issued = program.instances(entry.in_graph() ? RunStage::capture : RunStage::steady);
    const std::size_t number = entry.in_graph() ? entry.captured : entry.instance;
    if (number >= issued.size() || entry.instance >= program.instances(RunStage::steady).size()) return nullptr;
    const auto& operations = program.bodies[index(issued[number].body)].operations;
    return entry.operation < operations.size() ? &operations[entry.operation] : nullptr;
}

StepTimes step_times(const StepProgram& program, const StageTimeline& timeline) {
    std::vector<Interval> computing;
    std::vector<Interval> delays;
    std::vector<Interval> copies;
    StepTimes times;
    for (const TimelineEntry& entry : timeline.entries) {
        const Operation* const operation = operation_of(program, entry);
        if (operation == nullptr) continue;
        if (computes(*operation, entry.stream)) computing.emplace_back(entry.start, entry.end);
        if (is_delay(*operation)) delays.emplace_back(entry.start, entry.end);
        if (operation->kind != OperationKind::copy) continue;
        copies.emplace_back(entry.start, entry.end);
        times.copy_busy[static_cast<std::size_t>(operation->direction)] += entry.end - entry.start;
    }
    times.main_busy = covered(computing);
    const std::vector<Interval> not_idle = together(computing, delays);
    const Nanoseconds either = covered(not_idle);
    times.modelled_waits = either - times.main_busy;
    times.exposed_copy = covered(together(not_idle, copies)) - either;
    return times;
}

}  // namespace stowage::program
