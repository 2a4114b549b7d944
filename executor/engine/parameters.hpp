#pragma once

// The parameters of a rank as the executor sees them: a name, a place among the rank's parameters, and what they hold
// before the first step.
//
// Tested by: tests/executor/engine/parameters_test.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::executor {

/// How a parameter begins. Linears and embeddings are uniform within `kInitialLimit`, scales of norms one, biases zero.
enum class InitialValue : std::uint8_t { uniform, one, zero };
inline constexpr float kInitialLimit = 0.02F;

struct PlacedParameter {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t place = 0;  ///< first element among the rank's parameters; its gradient lies alike
    std::int64_t elements = 0;
    InitialValue initial = InitialValue::uniform;
};

/// In the order of chunks, frames and scripts. Throws: std::logic_error if the stage says no places.
std::vector<PlacedParameter> placed_parameters(const layers::StageLayers& stage);

}  // namespace stowage::executor
