#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// Places every parameter of the rank in one buffer, each on a multiple of 128 elements, by virtual stage, frame and
/// number: fills `parameter_places`. Returns the buffer's length in elements, at least one place.
std::int64_t place_parameters(StageLayers& stage);

/// The rank's buffers in the order of StowageState; parameters and gradients have `elements`.
std::vector<StateBuffer> stowage_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                        std::int64_t elements);

/// What follows the last backward: gradients summed over the data-parallel ranks, and cleared for the next step.
LayerScript stowage_optimizer(const types::Scenario& scenario, const Dimensions& dimensions, std::int64_t elements);

}  // namespace stowage::layers
