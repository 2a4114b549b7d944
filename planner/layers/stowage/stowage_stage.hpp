#pragma once

#include <cstdint>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// The scripts, optimizer and states of one pipeline rank under implementation `stowage`.
/// Throws: types::UnsupportedError if the scenario asks for what these layers lack.
StageLayers build_stowage_stage(const types::Scenario& scenario, std::int64_t pipeline_rank);

}  // namespace stowage::layers
