#pragma once

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// One transformer layer, forward and backward: attention, residual sum, dense or expert feed-forward, residual sum.
/// The two kinds of layer have the same attention.
LayerScript dense_layer(const Dimensions& dimensions, const types::Model& model);
LayerScript moe_layer(const Dimensions& dimensions, const types::Model& model);

}  // namespace stowage::layers
