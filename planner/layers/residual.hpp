#pragma once

// Bias, dropout and residual sum after attention and after the feed-forward part, and the sums of gradients that meet
// at a residual stream. Without dropout the gradient of a sum is the incoming gradient itself: no tensor is made.

#include <optional>
#include <string>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

struct ResidualSum {
    std::string name;
    bool bias = false;
    std::optional<SavedIndex> mask;  ///< one byte an element, with hidden dropout
};

/// output = residual + dropout(branch + bias); allocates `output`, drops nothing.
ResidualSum residual_forward(Writer& writer, const std::string& name, bool bias, Slot output);

/// The branch's gradient: a tensor to be dropped by the caller with dropout, nullopt where it is `gradient` itself.
std::optional<Slot> residual_backward(Writer& writer, const ResidualSum& sum);

/// Adds the gradient that came past the branch (and drops it) to the one that came through it.
void join_gradients(Writer& writer, const std::string& name, Slot past_branch);

}  // namespace stowage::layers
