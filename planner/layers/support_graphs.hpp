#pragma once

#include "planner/layers/missing_features.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// What cannot be captured, and what is captured by Megatron and not described here.
void check_graphs(const types::Scenario& scenario, Missing& missing);

}  // namespace stowage::layers
