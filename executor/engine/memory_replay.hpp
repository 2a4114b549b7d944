#pragma once

// The memory of an execution once more, from the answers that its allocator got from the device.
//
// The caching allocator hears of time only through "is this event done?". Given the logged answers in their order, the
// same program walked over virtual addresses takes the same blocks and segments: what differs from the measurement then
// is the allocator or the log, not the timing.
//
// Tested by: tests/executor/engine/memory_replay_test.cpp, against a walk with a seeded clock for a device.

#include <cstdint>
#include <optional>
#include <vector>

#include "executor/engine/step_memory.hpp"
#include "planner/memory/allocator_config.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::executor {

/// Set-up, first iteration, eager step and capture where the program has them, then `steps` steady ones.
/// Result: what the last of them took; nothing if the answers are too few: they are of another run.
/// Cost: O(operations of all steps).
std::optional<MemoryCounts> replay_memory(const program::StepProgram& program, const memory::AllocatorConfig& config,
                                          const std::vector<bool>& answers, std::int64_t steps);

/// The same walk with any backend for events, such as a test's.
MemoryCounts walk_memory(const program::StepProgram& program, const memory::AllocatorConfig& config,
                         memory::StreamEvents& events, std::int64_t steps);

}  // namespace stowage::executor
