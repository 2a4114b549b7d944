#include "executor/engine/profile.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "planner/program/step_times.hpp"

namespace stowage::executor {
namespace {

using profiler::OperationNumber;
using profiler::OperationTimes;
using program::Operation;
using program::OperationKind;
using program::Stream;
using types::Nanoseconds;

// A body has fewer operations than 2^24, a stage fewer instances than 2^32; six bits above them number the step.
constexpr unsigned kInstanceShift = 24;
constexpr OperationNumber kCaptured = OperationNumber{1} << 62;
constexpr Bytes kLargeCopy{16LL << 20};

/// One run of one operation, with where the program has it.
struct Run {
    const OperationTimes* times = nullptr;
    const Operation* operation = nullptr;
    OperationId id;
    program::TimelineEntry entry;
};

const Operation* find(const program::StepProgram& program, program::RunStage stage, OperationId id) {
    const auto& instances = program.instances(stage);
    if (id.instance >= instances.size()) return nullptr;
    const auto& operations = program.bodies[program::index(instances[id.instance].body)].operations;
    return id.operation < operations.size() ? &operations[id.operation] : nullptr;
}

/// A graph on the manager's stream has branches of its own for copies.
Stream node_stream(Stream stream, Stream launched_on) {
    if (stream == Stream::main) return launched_on;
    if (launched_on != Stream::graph) return stream;
    if (stream == Stream::d2h) return Stream::graph_d2h;
    return stream == Stream::h2d ? Stream::graph_h2d : stream;
}

bool place_node(const program::StepProgram& program, Run& run) {
    if (run.times->launch == profiler::kNoOperation) return false;
    const OperationId launch = operation_of(run.times->launch);
    const Operation* launched = find(program, program::RunStage::steady, launch);
    run.operation = find(program, program::RunStage::capture, run.id);
    if (launched == nullptr || run.operation == nullptr) return false;
    run.entry.instance = launch.instance;
    run.entry.captured = run.id.instance;
    run.entry.stream = node_stream(run.operation->stream, launched->stream);
    return true;
}

bool place_eager(const program::StepProgram& program, Run& run) {
    run.operation = find(program, program::RunStage::steady, run.id);
    if (run.operation == nullptr) return false;
    run.entry.instance = run.id.instance;
    run.entry.stream = run.operation->stream;
    return true;
}

std::vector<Run> runs_of(const program::StepProgram& program, const profiler::CorrelatedTimes& times) {
    std::vector<Run> runs;
    if (times.operations.empty()) return runs;
    const Nanoseconds origin = times.operations.front().first_start;
    for (const OperationTimes& one : times.operations) {
        Run run{&one, nullptr, operation_of(one.operation), {}};
        if (!(is_captured(one.operation) ? place_node(program, run) : place_eager(program, run))) continue;
        run.entry.operation = run.id.operation;
        run.entry.start = types::SimTime{one.first_start - origin};
        run.entry.end = types::SimTime{one.last_end - origin};
        runs.push_back(run);
    }
    return runs;
}

bool is_copy(const Run& run) { return run.operation->kind == OperationKind::copy; }

/// From the first start to the last end.
Nanoseconds duration_of(const std::vector<Run>& runs) {
    if (runs.empty()) return Nanoseconds{0};
    const auto begins = [](const Run& left, const Run& right) {
        return left.times->first_start < right.times->first_start;
    };
    const auto ends = [](const Run& left, const Run& right) { return left.times->last_end < right.times->last_end; };
    return std::max_element(runs.begin(), runs.end(), ends)->times->last_end -
           std::min_element(runs.begin(), runs.end(), begins)->times->first_start;
}

program::StageTimeline timeline_of(const std::vector<Run>& runs) {
    program::StageTimeline timeline;
    for (const Run& run : runs) timeline.entries.push_back(run.entry);
    std::stable_sort(timeline.entries.begin(), timeline.entries.end(),
                     [](const auto& left, const auto& right) { return left.end < right.end; });
    return timeline;
}

recording::CopyTime copies_of(const std::vector<Run>& runs, program::Direction direction) {
    recording::CopyTime copies;
    Bytes large;
    Nanoseconds large_busy{0};
    for (const Run& run : runs) {
        if (!is_copy(run) || run.operation->direction != direction) continue;
        copies.bytes += run.times->bytes;
        copies.busy += run.times->busy;
        if (run.times->bytes < kLargeCopy) continue;
        large += run.times->bytes;
        large_busy += run.times->busy;
    }
    if (large_busy.count() > 0)
        copies.largest_rate = static_cast<double>(large.count) * 1e9 / static_cast<double>(large_busy.count());
    return copies;
}

std::vector<recording::LabelTime> labels_of(const program::StepProgram& program, const std::vector<Run>& runs) {
    std::map<std::pair<std::string, Stream>, recording::LabelTime> labels;
    for (const Run& run : runs) {
        const std::string label =
            run.operation->detail < program.labels.size() ? program.labels[run.operation->detail] : "";
        recording::LabelTime& sum = labels[{label, run.entry.stream}];
        sum.label = label;
        sum.stream = std::string(program::name_of(run.entry.stream));
        ++sum.operations;
        sum.kernels += run.times->kernels;
        sum.busy += run.times->busy;
        sum.predicted += run.operation->duration;
    }
    std::vector<recording::LabelTime> sorted;
    for (auto& [key, sum] : labels) sorted.push_back(std::move(sum));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& left, const auto& right) { return left.busy > right.busy; });
    return sorted;
}

}  // namespace

OperationNumber number_of(OperationId id, bool captured) {
    return (captured ? kCaptured : 0) | (OperationNumber{id.instance} << kInstanceShift) | id.operation;
}

OperationId operation_of(OperationNumber number) {
    constexpr OperationNumber kOperationMask = (OperationNumber{1} << kInstanceShift) - 1;
    const OperationNumber plain = number & ~kCaptured;
    return {static_cast<std::uint32_t>(plain >> kInstanceShift), static_cast<std::uint32_t>(plain & kOperationMask)};
}

bool is_captured(OperationNumber number) { return (number & kCaptured) != 0; }

program::StageTimeline timeline_of(const program::StepProgram& program, const profiler::CorrelatedTimes& times) {
    return timeline_of(runs_of(program, times));
}

recording::Profile profile_of(const program::StepProgram& program, const profiler::CorrelatedTimes& times) {
    const std::vector<Run> runs = runs_of(program, times);
    recording::Profile profile;
    profile.duration = duration_of(runs);
    const program::StepTimes step = program::step_times(program, timeline_of(runs));
    profile.main_busy = step.main_busy;
    profile.exposed_copy = step.exposed_copy;
    profile.modelled_waits = step.modelled_waits;
    profile.device_to_host = copies_of(runs, program::Direction::device_to_host);
    profile.host_to_device = copies_of(runs, program::Direction::host_to_device);
    profile.labels = labels_of(program, runs);
    return profile;
}

}  // namespace stowage::executor
