#pragma once

#include "planner/memory/fragmentation.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::simulator {

/// Where a rank ran out of device memory.
struct Shortage {
    program::RunStage stage{};
    memory::FragmentationReport report;  ///< of the request that found none
};

}  // namespace stowage::simulator
