#pragma once

// Scores of all experts for each token, the best ones and their weights.
//
// Saved: the normed tokens, logits and probabilities in fp32 and the chosen experts in int64: 8 Ts E + 8 Ts topk bytes
// beside the tokens. With a capacity the tokens over it are masked out, in place.
// Source: Megatron-LM, core/transformer/moe/router.py and moe_utils.py.

#include <vector>

#include "planner/layers/gradient_sum.hpp"
#include "planner/layers/writer.hpp"

namespace stowage::layers {

struct Router {
    SavedIndex normed{};
    std::vector<SavedIndex> routing;  ///< logits, probabilities, chosen experts
};

/// `normed` [Ts, h] is not dropped.
Router router_forward(Writer& writer, Slot normed);
/// Drops the gradient of the routing weights and adds to the gradient of the normed tokens.
void router_backward(Writer& writer, const Router& router, Slot weights_gradient, GradientSum& sum);
void router_parameters(Writer& writer);

}  // namespace stowage::layers
