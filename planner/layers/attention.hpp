#pragma once

// Self-attention as Megatron runs it on Transformer Engine with cuDNN's fused attention: qkv linear with the norm fused
// into it, split, optional norms of query and key, rotary embedding, attention, output projection.
//
// Which tensors exist (heads a, groups g, head size k, widths are this rank's):
//   packed   [s, b, (a+2g) k]   the qkv linear's output; query, key and value are views of it
//   query    copied out of it when a group has several heads: its reshape cannot be a view
//   rotary   makes new query and key
//   value    cuDNN accepts three views of one buffer only when all three are; otherwise what is not contiguous is
//            copied first. So with rotary the value is copied and saved as a copy, and packed lives only until
//            attention returns; without rotary and with one head a group all three are saved as views of packed.
// Either way 2 * tokens * (a+2g) k bytes stay for the backward. Packed is emptied with the core_attn group: Megatron
// releases the value it passed in, whose storage is packed.
//
// Operations: scores and context take 2 b s^2 a k each without a mask; the causal mask leaves half of both, so forward
// 2 b s^2 a k in all. Backward has five products of that size against the forward's two (scores again, dV, dP, dQ, dK):
// 5 b s^2 a k.

#include <optional>
#include <vector>

#include "planner/layers/linear.hpp"

namespace stowage::layers {

struct HeadNorm {
    SavedNorm norm;
    Slot output{};
};

/// What attention's forward leaves for its backward.
struct Attention {
    NormLinear qkv;
    std::optional<HeadNorm> query_norm;
    std::optional<HeadNorm> key_norm;
    std::vector<SavedIndex> core;  ///< query, key, value, output, softmax statistics
    RowLinear projection;
};

/// From the layer's input to the projection's output, which is returned in `projection.output` and left to the caller.
Attention attention_forward(Writer& writer, Slot input);
/// `gradient`: of the projection's output; not dropped. Allocates and fills `grad_input`.
void attention_backward(Writer& writer, const Attention& attention, Slot grad_input);
void attention_parameters(Writer& writer);

}  // namespace stowage::layers
