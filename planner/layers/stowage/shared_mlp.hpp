#pragma once

// The shared expert of stowage's layers: a SwiGLU of its own beside the routed ones, on all tokens.
//
// Its output takes the layer's residual with it, so that the sum over a token's routed experts has one addend. Saved:
// fc1's output, outside of any group, unless `shared_experts` or `moe` is recomputed: then fc1 runs again in the
// backward.
//
// Tested by: tests/planner/layers/stowage_moe_test.cpp.

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

class SharedMlp {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit SharedMlp(StowageWriter& writer);

    /// Returns residual + output [s, b, h].
    Slot forward(CallOperand normed, CallOperand residual);
    /// Returns the gradient of the normed tokens.
    Slot backward(CallOperand gradient, CallOperand normed);

private:
    [[nodiscard]] CallSizes activation_sizes() const;
    Slot activation_backward(CallOperand gradient);

    StowageWriter& writer_;
    bool again_;
    LinearWeights fc1_;
    LinearWeights fc2_;
    Slot expanded_{};
    Slot activated_{};
    std::optional<SavedIndex> saved_expanded_;
};

}  // namespace stowage::layers
