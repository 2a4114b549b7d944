#pragma once

#include <vector>

#include "planner/layers/transformer_layer.hpp"

namespace stowage::layers {

/// Prefix of the names of a multi-token-prediction layer's own parameters.
inline constexpr const char* kMtpPrefix = "mtp.0.";

/// Multi-token prediction, one layer deep, between the last transformer layer and the head of the same stage.
///
/// The model's final norm runs first. Tokens one place further on are looked up in the embedding's table; the result
/// and the normed hidden states are normed once more each, laid side by side, and brought back to one hidden size by a
/// column-parallel linear whose output is gathered over the tensor ranks (with sequence parallelism the rank then takes
/// its part of the sequence as a view: the whole stays). A transformer layer like the model's last, or in a hybrid
/// model the layers that its pattern gives, and a norm follow. Output: the model's normed hidden states and behind them
/// these, [2 s, b, h]; the gradient of the first half waits until that of the second has come through the layer.
/// `own_table`: the stage has no embedding, and holds a copy of the table.
/// Source: Megatron-LM, core/transformer/multi_token_prediction.py.
LayerScript mtp_layer(const Dimensions& dimensions, const types::Scenario& scenario, bool own_table);

/// The layers inside, in order.
std::vector<LayerTraits> mtp_traits(const types::Model& model);

}  // namespace stowage::layers
