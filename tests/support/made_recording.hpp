#pragma once

// Recordings as a device would leave them, out of a stage's layers: kernels back to back on one stream.

#include <cstdint>
#include <functional>

#include "planner/layers/layer_script.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/kernel_places.hpp"
#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::tests {

/// What a kernel takes in a recording, start to start.
using KernelTime = std::function<types::Nanoseconds(const layers::Kernel& kernel, const program::KernelName& name,
                                                    std::int64_t layer, std::int64_t step)>;

struct MadeRecording {
    std::int64_t microbatches = 1;
    std::int64_t steps = 1;
    types::Nanoseconds gap{0};  ///< of the time of each kernel, the part behind its activity
};

/// Implementation stowage; steps of the stage `steady`, without graphs: every microbatch's forwards, then its backwards
/// in reverse order, the optimizer at the end.
recording::Recording made_recording(const layers::StageLayers& stage, const MadeRecording& made,
                                    const KernelTime& time);

/// One that takes what `durations` says, if nothing was measured.
recording::Recording recording_of_estimates(const layers::StageLayers& stage, const MadeRecording& made,
                                            const program::Durations& durations);

/// One that a run of the program left, as the executor's marks name its operations: kernels, copies and what waits in
/// place of other ranks, by stream. `timeline`: of the steady stage, without graphs.
recording::Recording recording_of_run(const program::StepProgram& program, const program::StageTimeline& timeline);

}  // namespace stowage::tests
