#pragma once

#include <cstdint>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// The layers of one pipeline rank, of the scenario's implementation.
/// Throws: types::UnsupportedError if that implementation lacks what the scenario asks for.
StageLayers build_stage(const types::Scenario& scenario, std::int64_t pipeline_rank);

}  // namespace stowage::layers
