#pragma once

// What context-parallel ranks exchange around a mixer that needs the whole sequence: before it every rank gives its
// tokens and gets a share of the heads for all tokens, after it the other way round. The chunks of the sequence, which
// attention wants dealt out from both ends, are put in order in between.
// Source: Megatron-LM, core/ssm/mamba_context_parallel.py. Departs from core/ssm/gated_delta_net.py, which permutes the
// heads before its one exchange where Mamba concatenates after its five: as many copies in another order.

#include <string>
#include <vector>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// One all-to-all for each width in `pieces` (elements of a token that are sent), then everything side by side and in
/// order. `shape` is the result's. The source is not dropped.
Slot tokens_to_heads(Writer& writer, const std::string& name, const std::vector<std::int64_t>& pieces, Shape shape);
/// One all-to-all of `width` elements a token, and back to this rank's tokens; `shape` is the result's.
Slot heads_to_tokens(Writer& writer, const std::string& name, std::int64_t width, Shape shape);

}  // namespace stowage::layers
