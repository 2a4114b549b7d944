#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"

namespace stowage::layers {

/// Scratch memory that cuDNN's fused attention asks for in a bf16 backward, in bytes: the query's gradient summed in
/// fp32 [b, heads, s, size], the row sums of output times gradient [b, heads, s] in fp32, and with grouped queries the
/// gradients of key and value of every query head before those of a group are added, [b, heads, s, size] each. The
/// executor asks cuDNN before it runs and fails if that wants more.
std::int64_t attention_backward_workspace(const Dimensions& dim);

}  // namespace stowage::layers
