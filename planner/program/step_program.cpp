#include "planner/program/step_program.hpp"

namespace stowage::program {

std::int64_t StepProgram::operation_count(RunStage stage) const {
    std::int64_t count = 0;
    for (const Instance& instance : instances(stage))
        count += static_cast<std::int64_t>(bodies[index(instance.body)].operations.size());
    return count;
}

}  // namespace stowage::program
