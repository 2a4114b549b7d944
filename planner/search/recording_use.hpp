#pragma once

// Planning from a recording: every kernel of a job takes the time that the recording has for it, and where the recorded
// step kept other tensors than the layers say, that is told.
//
// Tested by: tests/planner/search/recording_use_test.cpp.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/recorded_groups.hpp"
#include "planner/program/measured_durations.hpp"
#include "scenarios/recording/recording.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::search {

struct Job;

/// What a recording gave to a job.
struct RecordingUse {
    std::string scenario;  ///< that was recorded
    std::string device;    ///< as the driver calls it
    std::int64_t pipeline_rank = 0;
    bool same_device = true;           ///< recorded on the device that the job's hardware describes
    std::int64_t steps = 0;            ///< without graphs, behind the first
    std::int64_t recorded_layers = 0;  ///< layers that are the recording's; 0: only their times are
    std::int64_t kernels = 0;          ///< distinct ones with a time
    types::Nanoseconds gap{0};         ///< the device's own between two kernels, the middle one
    std::map<types::KernelClass, program::ClassSpread> spreads;
    types::Nanoseconds stamping{0};        ///< of recording itself, taken off each gap
    std::optional<double> recording_cost;  ///< the recorded steps' time over that of unrecorded ones, less 1
    std::vector<std::string> differences;  ///< between the recorded operations and those of its scenario's layers
    std::vector<layers::GroupDifference> groups;
};

/// Gives the kernels of `job` the times of the recording: those of the same module and operation as they are where the
/// work is the same, scaled where it has another size or device; everything else stays estimated. See
/// program::MeasuredDurations. The layout may differ, and the pipeline rank: what counts is the kernel.
/// `recorded`: the scenario that was recorded, read again. Fills in Job::recording. Cost: O(events log events).
/// Throws: types::InputError, without the file's name, if the recording is of another implementation, has no step to
/// measure by, or is of a pipeline rank that its scenario lacks.
void apply_recording(Job& job, const recording::Recording& recording, const types::Scenario& recorded);

/// The same from a recording that has no scenario, of a process that only marked its modules: the transformer layers of
/// `job` that were recorded become the recorded ones (implementation `recorded`; see program/recorded_layers.hpp), the
/// rest stays as its own implementation has it. Fills in Job::recording. Cost: O(events log events).
/// Throws: types::InputError, without the file's name, if there is no step to measure by, no layer of the job was
/// recorded, or the job needs more of a layer than a recording tells.
void apply_injected_recording(Job& job, const recording::Recording& recording);

}  // namespace stowage::search
