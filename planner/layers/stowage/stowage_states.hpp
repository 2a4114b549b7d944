#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"
#include "planner/layers/stowage/stowage_optimizer.hpp"

namespace stowage::layers {

/// Places every parameter of the rank in one buffer, each on a multiple of 128 elements, by virtual stage, frame and
/// number: fills `parameter_places`. Returns the buffer's length in elements, at least one place.
std::int64_t place_parameters(StageLayers& stage);

/// Elements up to the next parameter's place.
std::int64_t place_length(std::int64_t elements);

/// The rank's buffers in the order of StowageState.
std::vector<StateBuffer> stowage_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                        const OptimizerShare& share);

}  // namespace stowage::layers
