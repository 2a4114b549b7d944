#pragma once

// Attention by flash-attn's kernels.
//
// They take [b, s, heads, size]: query, key and value are first copied from the layers' order [s, b, ..], and the
// copies are saved with the output and one fp32 number per row of scores. The output is copied back into the layers'
// order for the projection, which saves that copy: two outputs live until the backward. With one sequence in the
// microbatch both orders are the same memory and only what is not contiguous is copied. Backward: the output's gradient
// in the kernels' order, then the three gradients. Source: Transformer Engine,
// pytorch/attention/dot_product_attention/backends.py, FlashAttention.
//
// Tested by: tests/planner/layers/flash_attention_test.cpp.

#include <vector>

#include "planner/layers/attention_context.hpp"
#include "planner/layers/attention_core.hpp"

namespace stowage::layers {

/// Fills `saved` and returns the output in the layers' order. Leaves `heads` to the caller.
Slot flash_attention_forward(Writer& writer, const Heads& heads, const AttentionCost& cost,
                             std::vector<SavedIndex>& saved);
/// Reads `saved`; drops nothing of the caller's. `gradient`: the output's.
HeadGradients flash_attention_backward(Writer& writer, bool views, const AttentionCost& cost,
                                       const std::vector<SavedIndex>& saved);

}  // namespace stowage::layers
