#pragma once

// What a rank would pin if its buffers lay in one arena, beside what Megatron's pool pins for the same program.
//
// Buffers live from the call that takes them to the call that returns them, in the order in which the host issues the
// program: the same lives for both, so that only the layout differs. With CUDA graphs the buffers of copies inside a
// graph are those of its capture.
//
// Tested by: tests/planner/simulator/pinned_demand_test.cpp, and against the executor's layout in
// tests/executor/engine/random_programs_test.cpp.

#include <vector>

#include "planner/memory/pinned_arena.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::memory {

using types::Bytes;

/// The pinned buffers of one stage, in the order in which they are acquired. Cost: O(operations of the bodies +
/// acquisitions).
std::vector<PinnedUse> pinned_uses(const program::StepProgram& program, program::RunStage stage);

/// One arena for a whole run, as the executor lays it out: what copies inside graphs use stays theirs, and the other
/// stages share what lies behind it, of which the one that needs the most decides. Worked example: graphs that use
/// 3 MiB, a first iteration 5 and a later one 2 take 8 MiB; without the first iteration (planned memory has no place
/// for it) 5. Cost: as above, and that of laying the arenas out.
Bytes pinned_arena_size(const program::StepProgram& program, bool first_iteration = true);

}  // namespace stowage::memory
