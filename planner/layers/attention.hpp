#pragma once

// Self-attention with grouped queries as Megatron runs it on Transformer Engine: qkv linear with the norm fused into
// it, split, optional norms of query and key, rotary embedding, attention, optional gate, output projection.
//
// Which tensors exist (heads a, groups g, head size k, widths are this rank's):
//   packed   [s, b, (a+2g) k]   the qkv linear's output; query, key and value are views of it. With an output gate
//            a k wider: the gate lies beside the query
//   query    copied out of it when a group has several heads: its reshape cannot be a view. So is the gate
//   rotary   makes new query and key
//   value    cuDNN accepts three views of one buffer only when all three are; otherwise what is not contiguous is
//            copied first. So with rotary the value is copied and saved as a copy, and packed lives only until
//            attention returns; without rotary and with one head a group all three are saved as views of packed.
//   gate     out * sigmoid(gate) is one fused function that saves both factors; the product is the projection's input
// Either way 2 * tokens * (a+2g) k bytes stay for the backward. Packed is emptied with the core_attn group: Megatron
// releases the value it passed in, whose storage is packed.

#include <optional>

#include "planner/layers/attention_core.hpp"
#include "planner/layers/linear.hpp"

namespace stowage::layers {

struct HeadNorm {
    SavedNorm norm;
    Slot output{};
    Shape shape;
};

/// What the fused gate saves: attention's output and the gate.
struct OutputGate {
    SavedIndex output{};
    SavedIndex gate{};
};

/// What attention's forward leaves for its backward.
struct Attention {
    NormLinear qkv;
    std::optional<HeadNorm> query_norm;
    std::optional<HeadNorm> key_norm;
    CoreAttention core;
    std::optional<OutputGate> gate;
    RowLinear projection;
};

/// The output projection's place, for both kinds of attention. In FP8 it saves its input in 16 bits, for attention
/// holds that tensor anyway, except with delayed scaling. Source: Megatron-LM, core/transformer/attention.py.
LinearSite projection_site(const Writer& writer);

/// From the layer's input to the projection's output, which is returned in `projection.output` and left to the caller.
Attention attention_forward(Writer& writer, Slot input, bool windowed);
/// `gradient`: of the projection's output; not dropped. Allocates and fills `grad_input`.
void attention_backward(Writer& writer, const Attention& attention, Slot grad_input);
void attention_parameters(Writer& writer);

}  // namespace stowage::layers
