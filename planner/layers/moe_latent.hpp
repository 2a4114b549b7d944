#pragma once

// The projections around routed experts that work at a latent width: down before the dispatch, up after the combine.
// Every tensor rank holds both whole and applies them to its own tokens. Each saves its input: the normed tokens (the
// router's own save, in 16 bits) and the combined rows [Ts, latent].
// Source: Megatron-LM, core/transformer/moe/moe_layer.py (fc1_latent_proj, fc2_latent_proj, parallel mode duplicated).

#include <optional>

#include "planner/layers/linear.hpp"

namespace stowage::layers {

inline bool has_latent(const Writer& writer) { return writer.model.moe_latent_size > 0; }

/// [Ts, h] -> [Ts, latent], left to the caller; `normed` is not dropped.
Linear latent_down_forward(Writer& writer, Slot normed);
/// Drops `gradient` and returns the gradient of the normed tokens.
Slot latent_down_backward(Writer& writer, const Linear& linear, Slot gradient);
/// [Ts, latent] -> [Ts, h], left to the caller; drops `combined`.
Linear latent_up_forward(Writer& writer, Slot combined);
/// Gradient of the combined rows; the gradient of the output is not dropped.
Slot latent_up_backward(Writer& writer, const Linear& linear);
void latent_parameters(Writer& writer);

}  // namespace stowage::layers
