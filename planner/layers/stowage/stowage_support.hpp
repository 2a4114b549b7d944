#pragma once

#include "planner/layers/missing_features.hpp"

namespace stowage::layers {

/// What stowage's own layers lack.
void check_stowage_layers(const types::Scenario& scenario, Missing& missing);

}  // namespace stowage::layers
