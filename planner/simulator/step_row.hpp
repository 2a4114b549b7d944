#pragma once

#include <vector>

#include "planner/program/step_program.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

/// How many steady steps have to follow one another, the host going on with the next as soon as it has issued one,
/// before what the allocator reserves is that of a long run; 0 where a step that begins on an idle device tells.
///
/// A block that another stream uses is free again only when the device has got there, so what is reserved hangs on how
/// far the host is ahead. Where the host waits for the device inside a step and nothing is left to come free behind
/// that, each step begins alike. Where it waits earlier, one step's end reaches into the next. Where it never waits its
/// lead grows until the launch queue is full: a step for each queue full of launches, one to get there and one to
/// measure, at most eight. Cost: O(operations of a step).
/// Source: docs/measurements/validation.md, reserved bytes of eager steps with Megatron's policy.
int steps_in_row(const std::vector<const program::StepProgram*>& programs, const types::Node& node);

}  // namespace stowage::simulator
