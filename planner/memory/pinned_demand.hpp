#pragma once

// What a rank would pin if its buffers lay in one arena, beside what Megatron's pool pins for the same program.
//
// Buffers live from the call that takes them to the call that returns them, in the order in which the host issues the
// program: the same lives for both, so that only the layout differs. With CUDA graphs the buffers of copies inside a
// graph are those of its capture.
//
// Tested by: tests/planner/memory/pinned_demand_test.cpp.

#include <vector>

#include "planner/memory/pinned_arena.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::memory {

/// The pinned buffers of one stage, in the order in which they are acquired. Cost: O(operations of the bodies +
/// acquisitions).
std::vector<PinnedUse> pinned_uses(const program::StepProgram& program, program::RunStage stage);

/// The arena of the stage that needs the largest; empty for a program that pins nothing. Cost: as above, and that of
/// laying the arenas out.
PinnedArena pinned_arena(const program::StepProgram& program);

}  // namespace stowage::memory
