#pragma once

// Attention over context-parallel ranks: each holds a share of the sequence, two chunks of it so that the causal mask
// leaves all ranks the same work, namely the whole's operations divided by the ranks.
//
// p2p (a ring): key and value are joined into one tensor that goes round in c - 1 exchanges beside c kernels. All c
//   tensors, the c partial outputs and their statistics live until the partial outputs are summed in fp32. Saved:
//   query, the tensor that came last, output, statistics. The backward goes round the other way with two double
//   buffers, key and value in one half, their gradients in the other: c exchanges, the first without gradients, the
//   last with them alone. What the layer gets are views of a buffer, which stays as long as they do. Partial outputs
//   are half as long on ranks before the diagonal; sizes are the last rank's, which has none of those.
// allgather: keys and values of all ranks are gathered and put in order, one kernel for each of the two chunks. Saved:
//   query, key, value of this rank and the two chunks' outputs, beside the output that the projection saves. The
//   backward gathers again and reduce-scatters the gradients.
// a2a: every rank gets a share of the heads for the whole sequence. Saved: what was received, and the output.
// Source: Transformer Engine, pytorch/attention/dot_product_attention/context_parallel.py.
//
// Tested by: tests/planner/layers/context_parallel_test.cpp.

#include <vector>

#include "planner/layers/attention_core.hpp"

namespace stowage::layers {

/// Costs of one rank's attention.
struct AttentionCost {
    double forward = 0;   ///< operations
    double backward = 0;  ///< operations
    std::int64_t forward_traffic = 0;
    std::int64_t backward_traffic = 0;
    AttentionWork work;
};

/// Query, key and value as attention gets them, and what to save of them where it saves them as they are.
struct ContextInputs {
    Slot query{};
    Slot key{};
    Slot value{};
};

/// Fills `saved` and returns the output.
Slot context_attention_forward(Writer& writer, const ContextInputs& saved_as, const AttentionCost& cost,
                               std::vector<SavedIndex>& saved);
/// Reads `saved`; drops nothing of the caller's.
HeadGradients context_attention_backward(Writer& writer, const AttentionCost& cost,
                                         const std::vector<SavedIndex>& saved);

}  // namespace stowage::layers
