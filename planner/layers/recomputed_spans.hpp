#pragma once

#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// The layers of one virtual stage that `--recompute-granularity full` runs twice, as places among its frames.
/// `layer_numbers` as ChunkLayers has them: -1 for frames that are not transformer layers; the layers lie side by side.
/// uniform: every layer, in groups of recompute_num_layers from the first, the last group may be shorter; block: the
/// first recompute_num_layers layers, each on its own. Result: empty for other granularities.
/// Source: Megatron-LM, core/transformer/transformer_block.py, _checkpointed_forward.
std::vector<RecomputedSpan> recomputed_spans(const types::Recompute& recompute,
                                             const std::vector<std::int64_t>& layer_numbers);

}  // namespace stowage::layers
