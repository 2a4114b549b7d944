#include "planner/simulator/step_row.hpp"

#include <algorithm>

namespace stowage::simulator {
namespace {

using program::OperationKind;

constexpr std::int64_t kMostSteps = 8;

/// What a rank's steady step holds.
struct StepContent {
    std::int64_t launches = 0;  ///< into the main stream's queue
    bool host_waits = false;
    bool frees_by_time = false;  ///< behind the host's last wait
};

StepContent content_of(const program::StepProgram& program) {
    StepContent content;
    for (const program::Instance& instance : program.instances(program::RunStage::steady))
        for (const program::Operation& operation : program.bodies[program::index(instance.body)].operations) {
            const bool on_main = operation.stream == program::Stream::main;
            if (operation.kind == OperationKind::compute && on_main) content.launches += operation.launches;
            if (operation.kind == OperationKind::record_stream) content.frees_by_time = true;
            if (operation.kind == OperationKind::device_sync ||
                (operation.kind == OperationKind::stream_sync && on_main)) {
                content.host_waits = true;
                content.frees_by_time = false;
            }
        }
    return content;
}

std::int64_t steps_for(const StepContent& content, std::int64_t queue) {
    if (!content.frees_by_time) return 0;
    if (content.host_waits) return 2;
    const std::int64_t launches = std::max<std::int64_t>(content.launches, 1);
    return std::min(kMostSteps, 2 + (queue + launches - 1) / launches);
}

}  // namespace

int steps_in_row(const std::vector<const program::StepProgram*>& programs, const types::Node& node) {
    std::int64_t steps = 0;
    for (const program::StepProgram* program : programs)
        steps = std::max(steps, steps_for(content_of(*program), node.host.launch_queue_depth));
    return static_cast<int>(steps);
}

}  // namespace stowage::simulator
