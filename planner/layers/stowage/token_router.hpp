#pragma once

// The router of stowage's layers: one linear with logits in fp32, scores, and weights of the assigned experts.
//
// Which experts a token goes to is an input (StowageState::assignment); what the scores would have chosen, groups of
// experts included, is worked out and dropped. A bias of experts only moves that choice, so there is none. Saved: the
// logits. The gradient of the logits is bf16, for the two GEMMs of the backward.
//
// Tested by: tests/planner/layers/stowage_moe_test.cpp.

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

class TokenRouter {
public:
    /// Declares the parameter. Keeps a reference to the writer.
    explicit TokenRouter(StowageWriter& writer);

    /// Returns the weights, fp32 [tokens, topk]. Saves the logits.
    Slot forward(CallOperand normed);
    /// Returns the gradient of the logits; drops `weights_gradient`.
    Slot scores_backward(Slot weights_gradient);
    /// Returns the gradient of the normed tokens.
    Slot input_gradient(Slot logits_gradient);
    void weight_gradient(Slot logits_gradient, CallOperand normed);

private:
    [[nodiscard]] CallSizes score_sizes() const;
    [[nodiscard]] CallSizes gemm_sizes() const;
    void gemm(std::string name, std::int64_t result_bytes, std::int64_t operand_bytes, KernelCall call);

    StowageWriter& writer_;
    ParameterIndex weight_;
    SavedIndex logits_{};
};

}  // namespace stowage::layers
