#include "tests/support/made_recording.hpp"

#include <algorithm>
#include <string>

namespace stowage::tests {
namespace {

using types::Nanoseconds;

std::uint32_t site(recording::Recording& recording, const recording::Site& wanted) {
    auto& sites = recording.sites;
    const auto found = std::find(sites.begin(), sites.end(), wanted);
    if (found != sites.end()) return static_cast<std::uint32_t>(found - sites.begin());
    sites.push_back(wanted);
    return static_cast<std::uint32_t>(sites.size() - 1);
}

recording::EventKind kind_of(const program::Operation& operation) {
    if (operation.kind != program::OperationKind::copy) return recording::EventKind::kernel;
    return operation.direction == program::Direction::device_to_host ? recording::EventKind::device_to_host
                                                                     : recording::EventKind::host_to_device;
}

recording::Event event_of(const program::StepProgram& program, const program::TimelineEntry& entry,
                          recording::Recording& recording) {
    const program::Instance& instance = program.instances(program::RunStage::steady)[entry.instance];
    const program::Operation& operation = program.bodies[program::index(instance.body)].operations[entry.operation];
    recording::Event event;
    event.site = site(recording, {std::string(name_of(operation.part)), std::string(name_of(operation.phase)),
                                  program.labels[operation.detail]});
    event.operation = entry.instance * 10'000 + entry.operation;
    event.layer = instance.layer;
    event.microbatch = instance.microbatch;
    event.kind = kind_of(operation);
    event.stream = static_cast<std::uint32_t>(program::index(entry.stream));
    event.start = entry.start.time_since_epoch();
    event.duration = entry.end - entry.start;
    event.bytes = operation.bytes;
    return event;
}

class Writer {
public:
    Writer(recording::Recording& recording, const MadeRecording& made, const KernelTime& time)
        : recording_(recording), made_(made), time_(time) {}

    void step(const layers::StageLayers& stage, std::int64_t number) {
        recording_.steps.emplace_back();
        recording_.steps.back().stage = "steady";
        step_ = number;
        now_ = Nanoseconds{0};
        operation_ = 0;
        for (std::int64_t microbatch = 0; microbatch < made_.microbatches; ++microbatch) pass(stage, microbatch);
        kernels(stage.optimizer, -1, -1, false);
        recording_.steps.back().duration = now_ - made_.gap;
    }

private:
    void pass(const layers::StageLayers& stage, std::int64_t microbatch) {
        for (const layers::ChunkLayers& chunk : stage.chunks)
            for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
                kernels(stage.scripts[chunk.order[frame]], chunk.layer_numbers[frame], microbatch,
                        program::runs_again(chunk, frame));
    }

    /// Forward and backward in one go: a recording does not care.
    void kernels(const layers::LayerScript& script, std::int64_t layer, std::int64_t microbatch, bool again) {
        for (const program::KernelPlace& place : program::kernel_places(script, again)) {
            const Nanoseconds time = time_(script.kernels[place.kernel], place.name, layer, step_);
            recording::Event event;
            event.site = site(recording_, {std::string(name_of(place.name.part)),
                                           std::string(name_of(place.name.phase)), place.name.work});
            event.operation = operation_++;
            event.layer = static_cast<std::int32_t>(layer);
            event.microbatch = static_cast<std::int32_t>(microbatch);
            event.kind = recording::EventKind::kernel;
            event.stream = 7;
            event.start = now_;
            event.duration = time - made_.gap;
            recording_.steps.back().events.push_back(event);
            now_ += time;
        }
    }

    recording::Recording& recording_;
    const MadeRecording& made_;
    const KernelTime& time_;
    std::int64_t step_ = 0;
    Nanoseconds now_{0};
    std::uint32_t operation_ = 0;
};

}  // namespace

recording::Recording made_recording(const layers::StageLayers& stage, const MadeRecording& made,
                                    const KernelTime& time) {
    recording::Recording recording;
    recording.source = recording.implementation = "stowage";
    recording.pipeline_rank = stage.pipeline_rank;
    recording.names = {""};
    Writer writer(recording, made, time);
    for (std::int64_t step = 0; step < made.steps; ++step) writer.step(stage, step);
    return recording;
}

recording::Recording recording_of_run(const program::StepProgram& program, const program::StageTimeline& timeline) {
    recording::Recording recording;
    recording.source = recording.implementation = "stowage";
    recording.pipeline_rank = program.pipeline_rank;
    recording.names = {""};
    recording.steps.emplace_back();
    recording::Step& step = recording.steps.back();
    step.stage = "eager";
    for (const program::TimelineEntry& entry : timeline.entries)
        step.events.push_back(event_of(program, entry, recording));
    std::stable_sort(
        step.events.begin(), step.events.end(),
        [](const recording::Event& left, const recording::Event& right) { return left.start < right.start; });
    for (const recording::Event& event : step.events)
        step.duration = std::max(step.duration, event.start + event.duration);
    return recording;
}

recording::Recording recording_of_estimates(const layers::StageLayers& stage, const MadeRecording& made,
                                            const program::Durations& durations) {
    return made_recording(
        stage, made, [&](const layers::Kernel& kernel, const program::KernelName& name, std::int64_t, std::int64_t) {
            return durations.estimate(kernel, name.phase);
        });
}

}  // namespace stowage::tests
