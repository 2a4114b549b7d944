#pragma once

// The shared expert: a feed-forward part of its own width that every token passes, beside the routed ones. It is split
// over the tensor-parallel ranks (never over the expert ones) and has no norm of its own: it reads the normed tokens.
//
// Saved: the normed tokens (the router saves the same storage), fc1's output, the activation's output; with a gate also
// one number a token and fc2's output, both for the product's backward.
//
// Overlapped (moe_shared_expert_overlap) it runs on a stream of its own, in two pieces: fc1 and the activation beside
// the dispatch's all-to-all, fc2 beside the combine's. The gathers of sequence parallelism are then operators of their
// own, not the linears', so that fc1 saves the gathered tokens and gathers nothing again. Scripts have one compute
// stream: the pieces are issued on it between an all-to-all that does not block and the wait for it, so they hide as
// much of the all-to-all as they last and nothing else; that they can also run beside the experts' own kernels is left
// out, and so is that their tensors come from the other stream's free blocks.
// Source: Megatron-LM, core/transformer/moe/shared_experts.py.

#include <optional>

#include "planner/layers/gradient_sum.hpp"
#include "planner/layers/linear.hpp"

namespace stowage::layers {

struct SharedExpertGate {
    SavedIndex input{};
    SavedIndex score{};
    SavedIndex ungated{};
};

struct SharedExpert {
    Linear fc1;
    SavedIndex activation_input{};
    RowLinear fc2;
    std::optional<SharedExpertGate> gate;
    Slot normed{};
    Slot activated{};  ///< alive between the two pieces of the forward
    Slot output{};     ///< [local tokens, h], left to the caller
};

/// fc1 and the activation; `normed` [local tokens, h] is not dropped.
SharedExpert shared_expert_begin(Writer& writer, Slot normed);
/// fc2 and the gate.
void shared_expert_finish(Writer& writer, SharedExpert& expert);

/// Back through the gate and fc2. Returns the gradient of the activation's output; the gate's share of the normed
/// tokens' gradient goes into `sum`. The gradient of the output is not dropped.
Slot shared_expert_finish_backward(Writer& writer, const SharedExpert& expert, GradientSum& sum);
/// Back through the activation and fc1; drops `gradient` and adds to `sum`.
void shared_expert_begin_backward(Writer& writer, const SharedExpert& expert, Slot gradient, GradientSum& sum);

void shared_expert_parameters(Writer& writer);

}  // namespace stowage::layers
