#pragma once

// The dense feed-forward part: fc1 with the norm fused into it, activation, fc2. None of its tensors has an offload
// module. Every activation saves its input only (squared ReLU is compiled into one kernel); fc2 saves the activation's
// output. Recomputed (`mlp`), a checkpoint around all of it saves the residual stream it reads, and the forward, norm
// and collectives included, runs again before the backward.
// Source: Megatron-LM, core/transformer/mlp.py, core/transformer/transformer_layer.py.

#include <optional>

#include "planner/layers/linear.hpp"

namespace stowage::layers {

struct DenseMlp {
    std::optional<SavedIndex> checkpoint;
    Slot input{};
    NormLinear fc1;
    SavedIndex activation_input{};
    RowLinear fc2;
};

/// From the residual stream to fc2's output, left to the caller in `fc2.output`.
DenseMlp dense_mlp_forward(Writer& writer, Slot input);
/// Allocates and fills `grad_input`; the gradient of fc2's output is not dropped.
void dense_mlp_backward(Writer& writer, const DenseMlp& mlp, Slot grad_input);
void dense_mlp_parameters(Writer& writer);

}  // namespace stowage::layers
