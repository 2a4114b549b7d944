#pragma once

// What a run on fixed addresses holds at once, as its host counts it: from the `allocate` to the `free` it issues, in
// bytes as asked for. It is what the executor measures as allocated, and with graphs leaves out what only graphs use
// between a capture and the replays, as the caching allocator's count does; the arena holds that too.
//
// Tested by: tests/planner/memory/planned_memory_test.cpp, and against the executor's own count in
// tests/executor/engine/random_programs_test.cpp.

#include "planner/program/step_program.hpp"

namespace stowage::memory {

/// The peak of a steady step after set-up, the capture and a step before. Cost: O(operations).
types::Bytes planned_steady_peak(const program::StepProgram& program);

}  // namespace stowage::memory
