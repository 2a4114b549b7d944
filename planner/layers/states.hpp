#pragma once

#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// What a rank holds between steps: parameters, gradient buffers, quantised copies of weights, main parameters,
/// moments, workspaces of libraries, and what Megatron keeps by the way. In the order in which they are allocated.
/// `stage`: with its chunks and their scripts.
std::vector<StateBuffer> rank_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                     const StageLayers& stage);

}  // namespace stowage::layers
