#pragma once

// A norm that stands alone before the half of a layer it feeds, and whose output may be made again in the backward.
//
// With `layernorm` recomputation its output goes once the forward of that half is done, and comes back with the first
// gradient of the half's output, before anything of the half runs backward. Only the norm's input waits in between.
// What reads the output saves `saved_as` instead of it: a stand-in that costs nothing and whose copies, where an
// offload group moves it, are made all the same, for Megatron's hooks see the tensor before it is emptied. Source:
// Megatron-LM, core/tensor_parallel/random.py (CheckpointWithoutOutput), core/transformer/transformer_layer.py.
//
// Tested by: tests/planner/layers/recompute_test.cpp.

#include <optional>
#include <string>

#include "planner/layers/norm.hpp"

namespace stowage::layers {

/// What to save in place of a tensor that is emptied in forward and made again in backward: a tensor of that shape that
/// costs nothing.
Slot stand_in(Writer& writer, const std::string& name, Shape shape);

struct SeparateNorm {
    std::string name;
    Part part{};
    Slot output{};    ///< [local tokens, h]; held until `separate_norm_done`
    Slot saved_as{};  ///< what its readers save: `output`, or its stand-in
    bool rebuilt = false;
    SavedNorm saved;
    SavedIndex input{};  ///< rebuilt: all that waits for the backward
    Module group{};
};

/// Norm over the hidden width inside `group`, which the caller opens and closes.
SeparateNorm separate_norm_forward(Writer& writer, const std::string& name, Part part, Slot input, Module group);
/// After the forward of what the norm feeds: lets go of the output.
void separate_norm_done(Writer& writer, const SeparateNorm& norm);
/// Before the backward of what the norm feeds: makes the output again where it was emptied.
void separate_norm_restore(Writer& writer, SeparateNorm& norm);
/// Fills the gradient of the input, which is already allocated.
void separate_norm_backward(Writer& writer, const SeparateNorm& norm);

}  // namespace stowage::layers
