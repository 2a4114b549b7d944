#pragma once

// The rows that experts' GEMMs work on. In FP8 those of each expert are padded to a multiple of 16 (mxfp8: 32), by
// copies in front of fc1 and behind fc2; where nothing is missing there is no copy. Source: Transformer Engine,
// pytorch/module/fp8_padding.py, fp8_unpadding.py.

#include "planner/layers/token_path.hpp"

namespace stowage::layers {

/// Rows of fc1 and fc2, those that pad included.
std::int64_t expert_rows(const Writer& writer);
bool pads_experts(const Writer& writer);

/// Padded copies of the tokens, or the tokens themselves; drops nothing.
TokenRows pad_tokens(Writer& writer, TokenRows tokens);
/// Drops `output` where it makes a copy without the padding.
Slot unpad_output(Writer& writer, Slot output);
/// The same of the two gradients.
Slot pad_gradient(Writer& writer, Slot gradient);
TokenRows unpad_gradients(Writer& writer, TokenRows tokens);

}  // namespace stowage::layers
