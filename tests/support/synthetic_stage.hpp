#pragma once

// Small stages for tests of the program and of what runs it: layers of two offloadable modules with one saved tensor
// each, sizes and times as the test says. Tensors are bf16, so bytes are twice the elements.

#include <cstdint>

#include "planner/layers/layer_script.hpp"

namespace stowage::tests {

/// One layer: core_attn saves `core_attn`, attn_proj saves `attn_proj`, each one kernel in each direction.
struct SyntheticLayer {
    std::int64_t core_attn_elements = 1 << 20;
    std::int64_t attn_proj_elements = 1 << 20;
    std::int64_t boundary_elements = 1 << 20;
    types::Nanoseconds kernel{1000};
    /// Both modules save the same storage (attention's output); attn_proj's commit releases it by force.
    bool shared = false;
    /// core_attn saves a strided view of half the storage instead of all of it.
    bool gathered = false;
    /// attn_norm encloses both; it saves the layer's input and releases it by force.
    bool norm = false;
    /// core_attn also saves a tensor that the module holds.
    bool weight = false;
    /// Above 0 a router, a permutation and experts follow the attention, one kernel each in each direction, and a sum;
    /// expert_fc1 saves the permuted tokens, a tensor of so many elements, and releases it by force.
    std::int64_t expert_elements = 0;
};

layers::LayerScript synthetic_layer(const SyntheticLayer& layer);

/// Fills in what its layers' graphs capture and which modules they switch off.
void use_graphs(layers::StageLayers& stage, const types::CudaGraph& graph);

/// Stage `rank` of `stages` with `layers` equal layers on each of its virtual stages; the first stage begins with an
/// embedding, the last ends with a head. One weight buffer exists from the start, one optimizer state from the first
/// optimizer step.
layers::StageLayers synthetic_stage(std::int64_t rank, std::int64_t stages, std::int64_t layers,
                                    const SyntheticLayer& layer = {}, std::int64_t virtual_stages = 1);

}  // namespace stowage::tests
