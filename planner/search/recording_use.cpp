#include "planner/search/recording_use.hpp"

#include <fmt/format.h>

#include <memory>

#include "planner/layers/stage.hpp"
#include "planner/program/recorded_layers.hpp"
#include "planner/search/job.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::search {
namespace {

void require_implementation(const recording::Recording& recording, const types::Scenario& recorded,
                            const types::Scenario& planned) {
    const auto wanted = types::name_of(planned.implementation);
    if (recording.implementation == wanted && recorded.implementation == planned.implementation) return;
    throw types::InputError(fmt::format(
        "error: implementation: found '{}', expected '{}', that of the scenario that is planned\nhint: kernels of one "
        "implementation say nothing about those of another; write 'implementation: {}' in the scenario, or plan "
        "without "
        "the recording",
        recording.implementation, wanted, recording.implementation));
}

void require_rank(const recording::Recording& recording, const types::Scenario& recorded) {
    const std::int64_t ranks = recorded.parallel.pipeline_model_parallel_size;
    if (recording.pipeline_rank >= 0 && recording.pipeline_rank < ranks) return;
    throw types::InputError(fmt::format("error: pipeline_rank: found {}, expected 0 to {}, a rank of its scenario",
                                        recording.pipeline_rank, ranks - 1));
}

void require_steps(const recording::Recording& recording, const program::RecordedOperations& operations) {
    if (!operations.operations.empty()) return;
    throw types::InputError(fmt::format(
        "error: steps: found {}, expected one that ran without graphs after the first and lost no record\nhint: record "
        "again with 'cuda_graph_impl: none' and nothing offloaded",
        recording.steps.size()));
}

RecordingUse begin_use(const recording::Recording& recording) {
    RecordingUse use;
    use.scenario = recording.scenario_name;
    use.device = recording.machine.device;
    use.pipeline_rank = recording.pipeline_rank;
    return use;
}

void describe(const program::RecordedOperations& operations, RecordingUse& use) {
    use.steps = static_cast<std::int64_t>(operations.steps.size());
    use.gap = operations.gap;
    use.stamping = operations.stamping;
    use.recording_cost = operations.recording_cost;
}

/// What was measured has the rates of its own duty.
void take(Job& job, RecordingUse use) {
    job.duties.clear();
    job.recording = std::make_shared<const RecordingUse>(std::move(use));
}

}  // namespace

void apply_recording(Job& job, const recording::Recording& recording, const types::Scenario& recorded) {
    require_implementation(recording, recorded, job.scenario);
    require_rank(recording, recorded);
    const types::Hardware& hardware = job.scenario.hardware;
    RecordingUse use = begin_use(recording);
    use.same_device = recorded.hardware.node.device.name == hardware.node.device.name;
    const program::RecordedOperations operations =
        program::recorded_operations(recording, use.same_device ? hardware.node : recorded.hardware.node);
    require_steps(recording, operations);

    const layers::StageLayers stage = layers::build_stage(recorded, recording.pipeline_rank);
    const program::Durations planned_durations(hardware, job.scenario.parallel);
    const program::Durations recorded_durations(use.same_device ? hardware : recorded.hardware, recorded.parallel);
    const program::MeasuredDurations measured(operations, recording.sites, stage, recorded_durations);
    for (layers::StageLayers& planned : job.stages) measured.apply(planned, planned_durations, use.same_device);

    describe(operations, use);
    use.kernels = measured.kernels();
    for (const auto& [kind, name] : types::enum_names<types::KernelClass>()) use.spreads[kind] = measured.spread(kind);
    use.differences = measured.differences();
    use.groups = layers::group_differences(recording, stage);
    take(job, std::move(use));
}

void apply_injected_recording(Job& job, const recording::Recording& recording) {
    const types::Node& node = job.scenario.hardware.node;
    const program::RecordedOperations operations = program::recorded_operations(recording, node);
    require_steps(recording, operations);
    RecordingUse use = begin_use(recording);
    describe(operations, use);
    for (layers::StageLayers& stage : job.stages)
        use.recorded_layers += program::use_recorded_layers(stage, operations, recording, node.device);
    if (use.recorded_layers == 0)
        throw types::InputError(
            "error: sites: found no layer of the scenario, expected kernels under marks with module, phase, layer and "
            "microbatch\nhint: mark modules with ranges such as "
            "'stowage:module=core_attn;phase=forward;layer=3;microbatch=0'");
    take(job, std::move(use));
}

}  // namespace stowage::search
