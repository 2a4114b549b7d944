#pragma once

// The optimizer of implementation `stowage`: AdamW in fp32 beside bf16 parameters, or none.
//
// A rank of the distributed optimizer holds the states of a share of its parameters: of dense ones one part in as many
// as there are data-parallel ranks, of experts' one in as many as there are ranks with the same experts. That many
// elements from the beginning of the rank's parameters are its own here, whatever their kinds; Megatron takes a stretch
// of each. What other ranks would update stays as it is.
//
// Tested by: tests/planner/layers/stowage_optimizer_test.cpp, tests/planner/program/stowage_slices_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// Elements of the rank's parameters, each parameter rounded up to a whole place.
struct OptimizerShare {
    std::int64_t elements = 0;  ///< all of them
    std::int64_t experts = 0;   ///< those of experts
    std::int64_t owned = 0;     ///< those that the rank updates; 0 without an optimizer
    std::int64_t partial = 0;   ///< those of whose gradient each of several tensor-parallel ranks has a part
    std::int64_t copied = 0;    ///< those of which another pipeline stage has a copy
};

/// `elements`: length of the rank's parameters, by place_parameters.
OptimizerShare optimizer_share(const types::Scenario& scenario, const StageLayers& stage, std::int64_t elements);

/// Main parameters and both moments of the owned elements, and the gradient's norm; nothing without an optimizer.
std::vector<StateBuffer> optimizer_states(const OptimizerShare& share);

/// What follows the last backward: gradients reduced over their replicas, and those of replicated parameters over
/// tensor-parallel ranks that each saw their own tokens, of a copied table over its stages; their norm, the update of
/// the owned elements, parameters gathered; gradients cleared for the next step. What crosses ranks is modelled.
LayerScript stowage_optimizer(const types::Scenario& scenario, const Dimensions& dimensions,
                              const OptimizerShare& share);

}  // namespace stowage::layers
