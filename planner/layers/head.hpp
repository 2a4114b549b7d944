#pragma once

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Where the output weight lives.
enum class OutputWeight : std::uint8_t {
    own,     ///< untied: a parameter of the last stage
    copy,    ///< tied, more than one pipeline stage: a second copy, kept equal by an all-reduce of its gradient
    shared,  ///< tied, one stage: the embedding's own tensor
};
OutputWeight output_weight(const types::Scenario& scenario);

/// The last stage's end: final norm, output layer, cross entropy; it has no kOutput and no kGradOutput.
///
/// Bytes around the loss, per token and local vocabulary entry: bf16 logits 2, their fp32 copy 4, and both live while
/// the loss is computed, because the caller still holds the logits: 6. The rest works in place on the copy, which is
/// saved as the softmax. In the backward it turns into the gradient in place and is cast to bf16 beside it: 6 again.
/// With multi-token prediction the norm has its place before it (mtp.hpp); the input is then twice as long, and the
/// second half goes through the same output layer first: its softmax, 4, stays while the model's loss is computed, so
/// that 10 are alive at once.
/// With sequence parallelism the gathered input of the output layer lies in the global memory buffer, a state.
/// The batch's labels, loss mask and attention mask are made here and go with the forward.
LayerScript head_layer(const Dimensions& dimensions, const types::Scenario& scenario, OutputWeight weight);

}  // namespace stowage::layers
