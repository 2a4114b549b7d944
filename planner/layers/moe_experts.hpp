#pragma once

// The routed experts of a rank as grouped linears: fc1, activation times routing weight, fc2. N: rows after dispatch.
//
// Activation. Gated (swiglu, quick_geglu) and squared ReLU: one fused kernel that saves its input and the weights, as
// the published recipes have it (use_fused_weighted_squared_relu for the latter). GELU: two steps; the product with the
// fp32 weights is fp32 and is then rounded, and its backward needs the activation's own output.
// Biases (add_bias_linear). fc1's is added by its GEMM; for fc2's see moe_bias.hpp.
// moe_act recomputed: what the group saves stays (fc1's output, the weights); the activation's output is dropped after
// fc2's forward. Before fc2's backward it is computed again and copied into the storage that fc2 saved, so that two
// copies live until fc2's backward is done (CheckpointWithoutOutput).
// FP8. fc1 saves its input as each expert's own FP8
// piece with mxfp8; with the other formats as one 16-bit tensor where expert_fc1 is offloaded (or may be), else FP8.
// Source: Megatron-LM, core/transformer/moe/experts.py; Transformer Engine, pytorch/module/grouped_linear.py.

#include <optional>
#include <vector>

#include "planner/layers/moe_bias.hpp"
#include "planner/layers/moe_rows.hpp"
#include "planner/layers/operand.hpp"
#include "planner/layers/token_path.hpp"

namespace stowage::layers {

/// What the backward of the activation reads.
struct ExpertActivation {
    SavedIndex input{};    ///< fc1's output
    SavedIndex weights{};  ///< routing weight of each row
    std::optional<SavedIndex> unweighted;
    Slot output{};
};

struct Experts {
    std::vector<SavedOperand> fc1_input;
    ExpertActivation activation;
    SavedOperand fc2_input;
    ExpertBias bias;
    Slot fc1_output{};
    Slot weights{};
    Slot output{};  ///< [N, width], left to the caller
};

/// Drops the tokens.
Experts experts_forward(Writer& writer, TokenRows tokens);
/// Drops `gradient`; returns gradients of the tokens and of their weights.
TokenRows experts_backward(Writer& writer, const Experts& experts, Slot gradient);
void experts_parameters(Writer& writer);

}  // namespace stowage::layers
