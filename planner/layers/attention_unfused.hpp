#pragma once

// Attention as plain GEMMs and a softmax, Transformer Engine's last backend: with fused and flash attention both
// switched off (`attention-backend: unfused`).
//
// n = b * a matrices of scores [s, s], whole: the mask costs as much as what it leaves.
// Forward: keys and values repeated for every query head where several share one; scores = q k^T, scaled by the GEMM;
//   the fused softmax, written to a second tensor in 16 bits; with attention dropout a third one and its mask of a byte
//   an element; context = p v, made contiguous in the order of the sequence.
// Saved: q and k by the first product, p by the softmax, with dropout the mask and the dropped p, and p (dropped or
// not)
//   and v by the second product. Without dropout p is saved twice: one storage, but two tensors to Megatron's manager,
//   which moves it twice and reloads it twice.
// Backward: the gradients of p and v; with dropout the former once more; the softmax's gradient takes the place of p's;
//   the gradients of q and k, each scaled into a second tensor.
// Source: Transformer Engine, pytorch/attention/dot_product_attention/backends.py, UnfusedDotProductAttention, and
// softmax.py; its and PyTorch's formulas of derivatives.
//
// Tested by: tests/planner/layers/unfused_attention_test.cpp.

#include <vector>

#include "planner/layers/attention_core.hpp"

namespace stowage::layers {

/// Whether the environment leaves Transformer Engine this backend alone.
bool attends_unfused(const types::Scenario& scenario);

/// What attention multiplies; no slots where all three are views of `packed`.
struct UnfusedInputs {
    std::optional<Slot> query;
    std::optional<Slot> key;
    std::optional<Slot> value;
    std::optional<Slot> packed;
};

/// Fills `saved` and returns the output.
Slot unfused_attention_forward(Writer& writer, const UnfusedInputs& inputs, std::vector<SavedIndex>& saved);
/// Reads and forgets `saved`. `views`: the gradients are joined into one tensor.
HeadGradients unfused_attention_backward(Writer& writer, bool views, const std::vector<SavedIndex>& saved);

}  // namespace stowage::layers
