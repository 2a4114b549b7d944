#include "cli/stand_ins.hpp"

#include "cli/recording_input.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/stand_ins.hpp"

namespace stowage::cli {

void use_stand_ins(search::Job& job, const StandInOptions& options) {
    if (options.recording) use_recording(job, *options.recording, options.input);
    types::Node& node = job.scenario.hardware.node;
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    for (layers::StageLayers& stage : job.stages) program::make_stand_ins(stage, durations, node.device);
    node.host.framework_forward = node.host.framework_backward = {};
}

}  // namespace stowage::cli
