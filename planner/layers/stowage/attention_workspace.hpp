#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"

namespace stowage::layers {

/// Scratch memory that cuDNN's fused attention asks for in a deterministic bf16 backward, in bytes. On Hopper it keeps
/// the gradient of the scores, [b, heads, s, s]; where that is more than the MLP's buffers, which are free by then, the
/// executor runs some heads at a time. The executor asks cuDNN before it runs and fails if that wants more. Measured
/// with cuDNN 9.14: 1,074,266,368 bytes for 32 heads of 128 and 4096 places. With
/// values narrower than keys it is an upper bound, not measured.
std::int64_t attention_backward_workspace(const Dimensions& dim);

/// How many parts of a sequence's heads the executor runs one after another with that; 1: all of the batch at once.
std::int64_t attention_backward_parts(const Dimensions& dim);

}  // namespace stowage::layers
