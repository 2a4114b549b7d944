#pragma once

#include <cstdint>

#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// What is left of the requested offloading in one layer, and where it lies.
struct LayerOffload {
    types::ModuleSet active{};    ///< requested, present in the layer, and not switched off by the graph's boundary
    types::ModuleSet captured{};  ///< those of `active` inside a graph; the others run eagerly
    /// Whether Megatron joins the copy streams at the edges of the layer's graph and replays it on the stream of
    /// graphs. By the listed modules alone: true with cuda_graph_impl none too, where nothing is captured, and in a
    /// layer without attention if attention's modules are asked for.
    bool plants_hooks = false;
    friend bool operator==(const LayerOffload&, const LayerOffload&) = default;
};

/// Megatron's downgrades at the building of layer `layer` (from 0). A norm whose input is a graph's input buffer cannot
/// leave: attn_norm if `attn` is listed; mlp_norm of a layer with experts if `attn` or `moe_router` is, of a dense
/// layer if one of `attn` and `mlp` is without the other. They follow from `cuda_graph_modules` whatever the
/// implementation. The empty list switches nothing off, captures everything and plants nothing: the copies never join
/// the graph. Experts are outside every graph but the whole layer's and the whole iteration's: offloading beside `moe`
/// is refused. Source: Megatron-LM, core/transformer/transformer_layer.py.
LayerOffload layer_offload(const types::Model& model, const types::CudaGraph& graph, types::ModuleSet requested,
                           std::int64_t layer);

/// Whether layer `layer` recomputes the norm before its experts. With the router in a graph of Transformer Engine the
/// norm's output is that graph's output, whose buffer cannot be given back, unless moe_preprocess is captured too and
/// the dispatcher's input is not that output: the all-to-all dispatcher, or experts of a latent width. A shared expert
/// beside the dispatch reads it outside the graph. False where the norm is part of the first linear.
/// Source: Megatron-LM, core/transformer/transformer_layer.py.
bool recomputes_mlp_norm(const types::Scenario& scenario, std::int64_t layer);

}  // namespace stowage::rules
