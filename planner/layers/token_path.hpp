#pragma once

// The way of tokens to the experts and back under the all-to-all dispatcher, in both directions of time: the backward
// of dispatch is combine's path and the other way round.
//
// Combine sums the shares of expert tensor ranks in the type of the routing probabilities, fp32: rows are widened for
// the reduce-scatter and rounded after it, and the other way round in its backward's gather.

#include <functional>
#include <string>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Token rows of the width that experts work in and, where it is carried along, one fp32 number a row.
struct TokenRows {
    Slot rows{};
    Slot weights{};
    bool weighted = false;
};

/// How a path is gone.
struct PathUse {
    bool widened = false;                    ///< expert tensor ranks exchange fp32 rows
    std::function<void()> beside = nullptr;  ///< writes what runs beside the all-to-all, whether there is one or not
};

/// Rows of `count` tokens; declared and allocated.
TokenRows make_rows(Writer& writer, const std::string& name, std::int64_t count, bool weighted);
void drop_rows(Writer& writer, const TokenRows& rows);

/// From permuted [Ts topk, w] to the experts' order [N, w]; drops what it is given.
TokenRows to_experts(Writer& writer, const std::string& name, TokenRows tokens, const PathUse& use = {});
/// From the experts' order [N, w] to permuted [Ts topk, w]; drops what it is given.
TokenRows from_experts(Writer& writer, const std::string& name, TokenRows tokens, const PathUse& use = {});

}  // namespace stowage::layers
