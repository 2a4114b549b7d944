#pragma once

// Questions about layers that need no simulation: parameters, bytes between steps, operations, tensor groups.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// Parameters of the whole model, each counted once, before vocabulary padding: the published figure. Those of
/// multi-token prediction are left out.
std::int64_t model_parameters(const types::Scenario& scenario);
/// Parameters that multi-token prediction adds: its layer, projection and norms; embedding and output layer are the
/// model's.
std::int64_t mtp_parameters(const types::Scenario& scenario);
/// Parameters that a rank of this stage holds, vocabulary padding and copies included.
std::int64_t rank_parameters(const StageLayers& stage);

/// Bytes between steps by use.
struct StateBytes {
    Bytes weights;
    Bytes gradients;
    Bytes optimizer;
    Bytes workspace;
    Bytes pinned_host;    ///< of host memory, page-locked
    Bytes pageable_host;  ///< of host memory
    /// Of the device.
    [[nodiscard]] Bytes total() const { return weights + gradients + optimizer + workspace; }
};
StateBytes state_bytes(const StageLayers& stage);
/// Page-locked memory that the states on the host take: PyTorch's allocator of it hands out powers of two.
Bytes pinned_state_blocks(const StageLayers& stage);

/// Operations (multiply and add are two) of one script for one microbatch.
using FlopsByPart = std::map<std::pair<Part, Phase>, double>;
FlopsByPart flops_by_part(const LayerScript& script);
double flops(const LayerScript& script, Phase phase);

/// One saved tensor of a group.
struct GroupTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    DataType type = DataType::bf16;
    Bytes bytes;
    CopyForm form = CopyForm::contiguous;
    bool held_elsewhere = false;  ///< another group or no group saves the same storage: copying it alone frees nothing
};

/// What one module of one layer saves, as Megatron's offload manager would copy it with every tensor eligible.
struct TensorGroup {
    Module module{};
    std::vector<GroupTensor> tensors;
    Bytes copied;  ///< sum over the tensors
    /// Storages that are gone after this group's commit when it is offloaded alone: those that only this group saves,
    /// and those that its release empties; a storage counts once.
    Bytes freed;
};
/// In the order of the forward's commits, which is the order of the copies.
std::vector<TensorGroup> tensor_groups(const LayerScript& script);

/// Bytes that the forward leaves for the backward: every saved storage once, persistent ones left out.
/// The layer's input counts here and not in the layer that made it.
Bytes saved_bytes(const LayerScript& script);

/// Operations of a training step that throughput is quoted in: three times the forward's linears, attention with the
/// causal half (a windowed layer: the window's width), output layer over the padded vocabulary, and multi-token
/// prediction with a second output layer. Whole job, whole global batch. The router, norms other than those of latents
/// and of multi-token prediction, and everything recomputed are not counted; of gated activations only SwiGLU counts a
/// third matrix. Source: Megatron-LM, training.num_floating_point_operations; windows: Megatron Bridge, flop_utils.
double model_flops_per_step(const types::Scenario& scenario);

}  // namespace stowage::layers
