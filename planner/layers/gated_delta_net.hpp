#pragma once

// A gated delta net as Megatron trains it, with the norm before it fused into its first linear:
//
//     input -> norm + in_proj -> [q k v | gate | strength | decay] -> convolution of q, k, v -> unit length of q and k,
//     heads of q and k repeated for the value heads -> gated delta rule -> norm of each head * silu(gate) -> out_proj
//
// None of its tensors has an offload group. Saved beside what the linears and the rule keep:
//   packed     in_proj's output: the convolution and the decay keep views of it
//   unit       q and k of unit length before they are repeated, one fp32 number a head
//   norm       the rule's output with one fp32 number a head, the normed output and the gate, which is copied out of
//              packed; with `gdn_norm_out` recomputation only the rule's output and the gate stay, and norm, gate and
//              what follows up to out_proj's input run again before the backward
// The functions that Megatron hands to torch.compile are read as their eager lines, except that the decay keeps what it
// came from. Several context-parallel ranks: hybrid_exchange.hpp.
// Source: Megatron-LM, core/ssm/gated_delta_net.py; flash-linear-attention, modules/l2norm.py, modules/convolution.py.
//
// Tested by: tests/planner/layers/hybrid_test.cpp.

#include <optional>
#include <vector>

#include "planner/layers/gated_delta_rule.hpp"
#include "planner/layers/linear.hpp"

namespace stowage::layers {

/// Norm of the rule's output and the gate.
struct GatedOutput {
    SavedNorm norm;
    SavedIndex normed{};
    SavedIndex gate{};
    Slot output{};  ///< [s, b, value width] of this rank's tokens
};

struct GatedDeltaNet {
    NormLinear in_proj;
    std::vector<SavedIndex> inputs;  ///< of the convolution and the decay: views of the packed tensor
    std::vector<SavedIndex> unit;
    DeltaRule rule;
    GatedOutput gated;
    std::vector<SavedIndex> checkpoint;  ///< gdn_norm_out: the rule's output and the gate
    Slot core{};
    Slot gate{};
    RowLinear out_proj;
};

/// From the layer's input to out_proj's output, left to the caller in `out_proj.output`.
GatedDeltaNet gated_delta_net_forward(Writer& writer, Slot input);
/// Allocates and fills `grad_input`; the gradient of out_proj's output is not dropped.
void gated_delta_net_backward(Writer& writer, const GatedDeltaNet& net, Slot grad_input);
void gated_delta_net_parameters(Writer& writer);

}  // namespace stowage::layers
