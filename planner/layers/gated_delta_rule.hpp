#pragma once

// The gated delta rule in chunks of 64 tokens, one autograd function (chunk_gated_delta_rule).
//
// It keeps its five inputs, the decay as running sums, and the inverse of one triangular matrix a chunk and head; what
// follows from them (w, u, the states of all chunks, the corrected values) is made again in the backward. With T
// tokens, H heads, sizes k and v, chunks of Q, in operations:
//     inverse       2 T Q k H, one kernel
//     w, u          2 T Q (k + v) H
//     states        4 T k v H, (T/Q) H k v
//     output        2 T k v H and 2 T Q (k + v) H
// Bytes per operation put these kernels below the rate of a matrix product: memory bounds them.
// Source: fla-org/flash-linear-attention, ops/gated_delta_rule/chunk.py, chunk_fwd.py and wy_fast.py,
// ops/common/chunk_delta_h.py and chunk_o.py.
//
// Tested by: tests/planner/layers/hybrid_test.cpp.

#include <vector>

#include "planner/layers/hybrid_dimensions.hpp"
#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Inputs of the rule, or their gradients: query and key [b, s, H, k], value [b, s, H, v], decay fp32 and strength
/// [b, s, H].
struct DeltaOperands {
    Slot query{};
    Slot key{};
    Slot value{};
    Slot decay{};
    Slot strength{};

    [[nodiscard]] std::vector<Slot> list() const { return {query, key, value, decay, strength}; }
};

struct DeltaRule {
    std::vector<SavedIndex> saved;
    Slot output{};  ///< [b, s, H, v], left to the caller
};

/// Drops nothing of the operands.
DeltaRule delta_rule_forward(Writer& writer, const DeltaDimensions& delta, const DeltaOperands& operands);
/// Drops `gradient`, the output's; the gradients of the operands are left to the caller.
DeltaOperands delta_rule_backward(Writer& writer, const DeltaDimensions& delta, const DeltaRule& rule, Slot gradient);

}  // namespace stowage::layers
