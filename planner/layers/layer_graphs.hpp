#pragma once

// Which part of a layer its CUDA graph captures, by Megatron's --cuda-graph-modules.
//
// A graph is a run of neighbouring steps: from the layer's begin or from behind its mixer, to behind the mixer, the
// router, the token permutation or to the layer's end. Its backward is the mirror image, so that a scope that leaves
// the experts outside begins its backward behind theirs. The empty list captures the whole layer.
//
//     attn                            mixer (attention, its norm before it and the sum behind it)
//     attn moe_router                 mixer, norm, shared experts that nothing overlaps, router
//     attn moe_router moe_preprocess  the same and the permutation, up to the first exchange
//     moe_router                      norm, shared experts, router: the attention runs before the graph
//     attn mlp                        a dense layer whole; of a layer with experts the mixer
//     moe                             experts too; only with fixed sizes
//
// A layer of which nothing is listed has no graph. Source: Megatron-LM, core/transformer/transformer_layer.py
// (capture and replay under Transformer Engine), core/transformer/moe/moe_layer.py, re-described.
// Tested by: tests/planner/layers/layer_graphs_test.cpp.

#include <optional>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// Nothing if no step of the layer is captured by itself: no listed part, no layer at all, or an implementation that
/// does not capture layers.
std::optional<LayerGraphs> layer_graphs(const LayerScript& script, const types::CudaGraph& graph);

/// Whether the forward's graph is also given the attention mask: it holds the mixer of a transformer layer.
bool takes_mask(const LayerScript& script, const LayerGraphs& graphs);

/// Offload modules that Megatron switches off in this layer when it is built, whatever the implementation: a norm whose
/// input would be the graph's input buffer (rules D1 to D3).
types::ModuleSet downgraded_modules(const LayerScript& script, const types::CudaGraph& graph);

/// Fills `graphs` and `downgraded` of a stage whose scripts are complete.
void add_graphs(const types::Scenario& scenario, StageLayers& stage);

}  // namespace stowage::layers
