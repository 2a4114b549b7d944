#pragma once

// The expert feed-forward part with Megatron's all-to-all dispatcher, dropless, experts as grouped linears.
//
// Tokens on their way (each arrow makes a tensor and ends the one before it; autograd saves only indices):
//   normed [Ts, h] -> permuted [Ts topk, h] -> all-to-all [R, h] -> gathered over expert tensor ranks [N, h]
//   -> sorted by local expert [N, h] -> fc1 -> activation -> fc2 [N, h] and back the same way.
// Ts: this rank's tokens; R: token copies it receives; N = R * expert tensor ranks. Stages whose group has one rank
// vanish. The host waits for the counts of tokens per expert before it can size the received tensors.
//
// Saved: the norm's input and statistics (group mlp_norm), its output (by the router), logits and probabilities in
// fp32 and the chosen experts in int64 (together 8 Ts E + 8 Ts topk bytes), the permutation's indices, fc1's input
// (group expert_fc1), fc1's output and the routing weights (group moe_act), fc2's input. An activation without a gate
// keeps one tensor more: its output before the routing weights are multiplied in.
// Source: Megatron-LM, core/transformer/moe/{router,token_dispatcher,experts}.py.

#include <optional>

#include "planner/layers/norm.hpp"

namespace stowage::layers {

struct Moe {
    SavedNorm norm;
    SavedIndex normed{};
    std::vector<SavedIndex> routing;  ///< logits, probabilities, chosen experts
    SavedIndex permutation{};
    SavedIndex fc1_input{};
    SavedIndex fc1_output{};
    SavedIndex weights{};  ///< routing weight of each token copy
    std::optional<SavedIndex> unweighted;
    SavedIndex fc2_input{};
    Slot output{};
};

/// Opens the group mlp_norm and leaves it open: it closes after the residual sum.
Moe moe_forward(Writer& writer, Slot input);
/// Allocates and fills `grad_input` [Ts, h]; the gradient of the output is not dropped.
void moe_backward(Writer& writer, const Moe& moe, Slot grad_input);
void moe_parameters(Writer& writer);

}  // namespace stowage::layers
