#pragma once

// Which experts every token goes to: the routing of a scenario, made before the first step.
//
// Balanced, every expert gets as many rows as whole rows allow (layers::rows_before), so that with all experts at home
// the rows of an expert are exactly those that its product reads. Skewed, a rank's own experts get what the rank gets
// of its own choices, evenly, and the other ranks' experts share the rest.
//
// Experts' copies lie one behind the other and are dealt to the tokens in turn: an expert with no more rows than there
// are tokens never meets a token twice. The tokens' order is pseudo-random.
//
// Tested by: tests/executor/engine/assignment_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/layers/dimensions.hpp"

namespace stowage::executor {

/// Rows of each expert of the model, of this rank's tokens.
std::vector<std::int64_t> rows_of_experts(const layers::Dimensions& dimensions);

/// Experts of every token, [tokens, topk]. Throws: std::logic_error if an expert has more rows than there are tokens.
std::vector<std::int32_t> forced_assignment(const layers::Dimensions& dimensions, std::uint64_t seed);

}  // namespace stowage::executor
