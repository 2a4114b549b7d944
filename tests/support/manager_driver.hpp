#pragma once

// Drives MegatronManager as a training loop would: chunks of layers with named groups, forwards and backwards in a
// given order, and a log of what the manager let through. No tensors and no scripts, so a case is a few lines of data.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/megatron_manager.hpp"

namespace stowage::tests {

/// A hook of a layer's forward; the backward runs them mirrored, and reads a group's tensors just before its `start`.
struct Hook {
    bool start = true;
    types::Module module{};
    types::Bytes bytes;
};

/// The hooks of one layer in forward order.
using LayerHooks = std::vector<Hook>;

/// One after the other: start a, commit a, start p, commit p.
LayerHooks flat(const std::vector<types::Module>& modules, types::Bytes bytes);
/// The attention of a layer as Megatron nests it: attn_norm around qkv_linear, core_attn and attn_proj.
LayerHooks nested_attention(types::Bytes bytes);
/// A MoE layer: the attention, then mlp_norm around expert_fc1 and moe_act.
LayerHooks nested_moe(types::Bytes bytes);

/// The layers of one chunk.
using ChunkLayers = std::vector<LayerHooks>;

/// One forward or backward of a chunk, in the order a rank runs them.
struct ChunkStep {
    bool forward = true;
    std::uint32_t chunk = 0;
};

/// What a rank runs in one iteration.
struct ManagerCase {
    std::vector<ChunkLayers> chunks;  ///< in forward order
    std::vector<std::uint32_t> backward_order;
    std::vector<ChunkStep> steps;
    std::int64_t pipeline_rank = 0;
};

/// `microbatches` chunks of the same layers under 1F1B.
ManagerCase plain_pipeline(std::int64_t rank, std::int64_t stages, std::int64_t microbatches,
                           const ChunkLayers& layers);

/// Interleaved 1F1B: `virtual_stages[v]` are the layers of the rank's v-th virtual stage, microbatches run in groups of
/// `group`. Chunks are numbered in forward order.
ManagerCase interleaved_pipeline(std::int64_t rank, std::int64_t stages, std::int64_t microbatches, std::int64_t group,
                                 const std::vector<ChunkLayers>& virtual_stages);

/// What one iteration did.
struct Iteration {
    std::int64_t copies = 0;        ///< groups copied to the host
    std::int64_t inline_reads = 0;  ///< groups read back on the main stream
    std::int64_t reloads = 0;       ///< prefetches that moved something
    /// In order: "off c0g1" copy, "keep c0g1" commit without one, "load c0g1" prefetch, "wait c0g1" the main stream
    /// waits for that group's prefetch, "read c0g1" inline read.
    std::vector<std::string> log;
    /// Groups that were offloaded and reloaded but read before the main stream had waited for their prefetch.
    std::int64_t unawaited_reads = 0;
};

class ManagerDriver {
public:
    ManagerDriver(ManagerCase run, const types::OffloadChoice& choice, types::RuleSet rules);
    /// The first iteration, then the policy.
    Iteration record();
    Iteration steady();
    [[nodiscard]] const program::MegatronManager& manager() const { return manager_; }
    /// The offload flags of a chunk's groups, "110".
    [[nodiscard]] std::string flags(std::uint32_t chunk) const;

private:
    Iteration iterate();
    void forward(std::uint32_t chunk, Iteration& seen);
    void backward(std::uint32_t chunk, Iteration& seen);
    void read(std::uint32_t chunk, std::uint32_t group, Iteration& seen);

    ManagerCase run_;
    std::vector<std::vector<std::uint32_t>> hook_groups_;  ///< per chunk and hook: the group's number
    program::MegatronManager manager_;
    std::vector<std::vector<bool>> loading_;  ///< per chunk and group: prefetched and not waited for
};

}  // namespace stowage::tests
