#pragma once

// From what the device did in one step to a timeline with the program's operation ids, and to sums.
//
// Tested by: tests/executor/engine/profile_test.cpp.

#include "executor/engine/machine.hpp"
#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"
#include "profiler/cupti/correlate.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::executor {

/// The number under which an operation's work is recorded: of the steady step, or of the capture.
profiler::OperationNumber number_of(OperationId id, bool captured);
OperationId operation_of(profiler::OperationNumber number);
bool is_captured(profiler::OperationNumber number);

/// What the operations of a steady step took, from its first start on. Nodes stand under the launch of their graph.
program::StageTimeline timeline_of(const program::StepProgram& program, const profiler::CorrelatedTimes& times);

/// Sums over the same. Numbers of dropped and unmatched records are left to the caller.
recording::Profile profile_of(const program::StepProgram& program, const profiler::CorrelatedTimes& times);

}  // namespace stowage::executor
