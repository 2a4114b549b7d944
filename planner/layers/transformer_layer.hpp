#pragma once

#include <string>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// How one layer of a model differs from another.
struct LayerTraits {
    types::Mixer mixer = types::Mixer::attention;
    types::FeedForward feed_forward = types::FeedForward::dense;
    bool windowed = false;
};
LayerTraits traits_of(const types::Model& model, std::int64_t layer);
/// The script's name; equal for layers that share a script.
std::string name_of(const LayerTraits& traits);
/// Whether the script is of a layer with a Mamba mixer, which is no transformer layer to Megatron.
bool is_mamba(const LayerScript& script);

/// One transformer layer of Megatron-LM on Transformer Engine, forward and backward, with its parameters.
LayerScript transformer_layer(const Dimensions& dimensions, const types::Scenario& scenario, const LayerTraits& traits);

}  // namespace stowage::layers
