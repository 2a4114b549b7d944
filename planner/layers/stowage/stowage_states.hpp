#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"
#include "planner/layers/stowage/stowage_optimizer.hpp"

namespace stowage::layers {

/// Places every parameter of the rank in one buffer, each on a multiple of 128 elements, by virtual stage, frame and
/// number: fills `parameter_places`. Returns the buffer's length in elements, at least one place.
std::int64_t place_parameters(StageLayers& stage);

/// Places the FP8 copies of the weights that have them, each on a multiple of 256 bytes: fills `fp8_places`. Returns
/// the state's bytes, 0 if no weight has copies.
Bytes place_fp8_weights(StageLayers& stage);

/// Elements up to the next parameter's place.
std::int64_t place_length(std::int64_t elements);

/// The rank's buffers in the order of StowageState. `fp8_weights`: what `place_fp8_weights` returns.
std::vector<StateBuffer> stowage_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                        const OptimizerShare& share, Bytes fp8_weights);

}  // namespace stowage::layers
