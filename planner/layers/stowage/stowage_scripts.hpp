#pragma once

// The scripts of implementation `stowage`: what the executor runs.
//
// A model of vocab_size 0 is a bare stack of layers: its first script makes pseudo-random hidden states, its last one
// takes the mean of their squares as the loss. The gradients of a step are those of the sum of its microbatches'
// losses.
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp, tests/planner/program/stowage_programs_test.cpp.

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// Whether there is neither embedding nor final norm nor output layer.
inline bool is_bare_stack(const types::Model& model) { return model.vocab_size == 0; }

/// Tokens and their rows of the table, or hidden states out of nothing.
LayerScript stowage_embedding(const Dimensions& dimensions, const types::Scenario& scenario);
LayerScript stowage_layer(const Dimensions& dimensions, const types::Scenario& scenario);
/// With experts in its second half.
LayerScript stowage_moe_layer(const Dimensions& dimensions, const types::Scenario& scenario);
/// Multi-token prediction between the last layer and the head; see stowage_mtp.cpp. `own_table`: the stage has no
/// embedding, and holds a copy of the table.
LayerScript stowage_mtp(const Dimensions& dimensions, const types::Scenario& scenario, bool own_table);
/// Final norm, output layer and cross entropy (token_loss.hpp); without the norm behind multi-token prediction, which
/// has it. Or the mean of squares.
LayerScript stowage_head(const Dimensions& dimensions, const types::Scenario& scenario);

}  // namespace stowage::layers
