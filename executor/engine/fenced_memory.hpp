#pragma once

// Memory in which every buffer lies between two fences, for the mode that finds writes beside what a program declares.

#include <memory>

#include "executor/engine/step_memory.hpp"

namespace stowage::executor {

inline constexpr Bytes kFence{512};

/// Buffers of `memory`, each larger by two fences; what is given out begins behind the first one.
std::unique_ptr<StepMemory> fenced_memory(std::unique_ptr<StepMemory> memory);

}  // namespace stowage::executor
