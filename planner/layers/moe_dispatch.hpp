#pragma once

// What brings tokens to the ranks of their experts and back, by the kinds of Megatron's --moe-token-dispatcher-type.
// Ts: this rank's tokens; w: the width experts work in; g: expert ranks times expert tensor ranks; Tg = g Ts.
//
// alltoall   normed [Ts, w] -> permuted [Ts topk, w] -> all-to-all [R, w] -> gathered over expert tensor ranks [N, w]
//            -> sorted by local expert [N, w], and back the same way. The host waits for the counts of tokens per
//            expert; with padding to a capacity all sizes are fixed, nothing is counted and the host does not wait.
//            Saved: the permutation's indices; the probabilities and the map expert by expert, 5 Ts E bytes, for the
//            selection of the weights (padded: its places, 8 bytes a row).
// allgather  every rank gathers the tokens, the routing map and the probabilities of all g ranks, the tokens into the
//            global memory buffer (not an allocation of the step), and picks those of its experts; the host waits for
//            their number. Back: all rows of the group in fp32, the type of the probabilities, reduce-scattered.
//            Saved: the permutation's indices; its experts' probabilities and map for the selection's backward.
// flex       one fused call permutes, sends and sorts (HybridEP); the host waits for the counts, since no number of
//            rows is given to it. A token crosses the network once to each node that has one of its experts and then
//            NVLink once to each such rank there, and its results come back summed the same way. Saved: its handle, a
//            byte for each token of the group and local expert and a 4-byte place for each token of the group. Its
//            buffers lie outside PyTorch's allocator.
// Source: Megatron-LM, core/transformer/moe/{token_dispatcher,fused_a2a,moe_utils}.py; DeepEP, branch hybrid-ep.

#include <optional>
#include <vector>

#include "planner/layers/token_path.hpp"

namespace stowage::layers {

struct Dispatch {
    std::vector<SavedIndex> saved;  ///< read by the backward of dispatch
    TokenRows tokens;               ///< [N, w] in the experts' order
};

/// From the tokens [Ts, w], which the caller holds and drops. `beside`: see PathUse.
Dispatch dispatch_forward(Writer& writer, const std::function<void()>& beside = nullptr);
struct Combine {
    Slot output{};
    std::optional<SavedIndex> rows;  ///< what was summed, where its backward wants it
};

/// Sums the copies of each token: [N, w] -> [Ts, w]; drops what it is given. In deterministic mode without fused
/// permutation the sum is PyTorch's index_add, which saves what it adds; otherwise scatter_add, which does not.
Combine combine_forward(Writer& writer, Slot expert_output, const std::function<void()>& beside = nullptr);
/// Gradient of the experts' output [N, w]; the gradient of what combine returned is not dropped.
Slot combine_backward(Writer& writer, const Combine& combine, const std::function<void()>& beside = nullptr);
/// Gradient of the tokens in `rows` [Ts, w], that of the routing weights in `weights`; drops what it is given.
TokenRows dispatch_backward(Writer& writer, const Dispatch& dispatch, TokenRows tokens,
                            const std::function<void()>& beside = nullptr);

/// Device memory that the flex dispatcher's library takes for itself, once: room for the rows and probabilities of all
/// tokens of the group on one rank, and for a rank's own rows once for each other node. Nothing with other dispatchers.
Bytes fused_dispatch_buffer(const types::Scenario& scenario, const Dimensions& dim);

}  // namespace stowage::layers
