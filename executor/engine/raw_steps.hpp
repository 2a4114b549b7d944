#pragma once

// What a recorder saw of a program's steps, made ready for a recording: one RawStep a step, with a mark for every
// operation that did something. From here on nobody looks at the program.
//
// Steps are recorded back to back, so that the device is as busy as in training; the number of the step among them
// stands in the numbers that operations are recorded under.
//
// Tested by: tests/executor/engine/raw_steps_test.cpp.

#include <cstdint>
#include <map>
#include <vector>

#include "executor/engine/profile.hpp"
#include "planner/layers/layer_script.hpp"
#include "profiler/cupti/raw_events.hpp"

namespace stowage::executor {

inline constexpr std::uint32_t kMostRecordedSteps = 63;
/// What is issued between two steps, such as the number of the next one: no operation's, and left out.
inline constexpr profiler::OperationNumber kBetweenSteps = profiler::OperationNumber{1} << 63;

/// An operation's number in one of several steps; `operation_of` gives the same operation for all of them.
profiler::OperationNumber in_step(profiler::OperationNumber number, std::uint32_t step);
std::uint32_t step_of(profiler::OperationNumber number);
profiler::OperationNumber without_step(profiler::OperationNumber number);

/// The steps 0 to `steps` - 1 of a recording, with numbers as in one step. What was issued under no operation goes with
/// what ran before it. Records that were dropped count in every step: whose they were is not known.
std::vector<profiler::Recording> split_steps(const profiler::Recording& recording, std::uint32_t steps);

/// Says whose work a program's operations are.
class OperationMarks {
public:
    /// Keeps a reference to the program.
    OperationMarks(const program::StepProgram& program, const layers::StageLayers& layers);

    /// Of an operation of `stage`, or of the capture if its number says so. Module: the part of the model, of an
    /// offload or a reload the module whose group moves. Work: the operation's label.
    [[nodiscard]] profiler::Mark of(program::RunStage stage, profiler::OperationNumber number) const;
    /// Fills in the marks of all that the step's activities and memory events name.
    void resolve(program::RunStage stage, profiler::RawStep& step) const;

private:
    const program::StepProgram& program_;
    std::map<std::int32_t, std::int32_t> chunks_;  ///< virtual stage by number of the layer
    std::int32_t last_chunk_ = 0;
};

}  // namespace stowage::executor
