#pragma once

// The way of tokens to the experts and back, in both directions of time: the backward of dispatch is combine's path
// and the other way round.

#include <string>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Token rows of width h and, where it is carried along, one fp32 number a row.
struct TokenRows {
    Slot rows{};
    Slot weights{};
    bool weighted = false;
};

/// From permuted [Ts topk, h] to the experts' order [N, h]; drops what it is given.
TokenRows to_experts(Writer& writer, const std::string& name, TokenRows tokens);
/// From the experts' order [N, h] to permuted [Ts topk, h]; drops what it is given.
TokenRows from_experts(Writer& writer, const std::string& name, TokenRows tokens);

}  // namespace stowage::layers
