#pragma once

// The scripts of the measured peer (peer_stage.hpp): a layer, and the loss.

#include "planner/layers/layer_script.hpp"

namespace stowage::testing::peer {

/// The first layer reads the caller's input, which nothing it does can free, and hands no gradient on.
/// `contiguous_gradients`: attention's are gathered before they are joined. GEMMs take `gemm_time` of their usual time.
layers::LayerScript layer_script(bool first, bool contiguous_gradients, double gemm_time);

/// mean(float(y)^2): an fp32 copy in the forward, four fp32 temporaries in the backward, where the step's peak is.
layers::LayerScript loss_script();

}  // namespace stowage::testing::peer
