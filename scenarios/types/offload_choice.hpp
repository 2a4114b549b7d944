#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/types/module.hpp"

namespace stowage::types {

/// Policy `stowage`: any subset of the groups, by layer.
struct FreeOffload {
    /// By number of the layer in the model: the groups that leave. Layers beyond the end keep theirs.
    std::vector<ModuleSet> by_layer;
    /// In groups, at least 1: a group's reload is issued when the backward of the group that many before it, in the
    /// order of the backwards and counting kept ones too, is done.
    std::int64_t reload_ahead = 2;
    /// In commits, kept groups' too: at each the main stream waits for the copy of the group so many before, and at the
    /// first hook of a backward for all that are left. Bounds what is under way, and lets fixed addresses be reused.
    std::int64_t join_after = 2;

    friend bool operator==(const FreeOffload&, const FreeOffload&) = default;
};

/// One concrete offload policy: what Megatron's flags can express and `auto` is replaced by, or with `free` any subset.
struct OffloadChoice {
    ModuleSet modules;
    double fraction = 1;                               ///< share of groups, applied per chunk
    std::int64_t min_offloaded_tensor_size = 1048576;  ///< elements
    std::int64_t delta_bytes_across_pp_ranks = 0;
    /// Copies of one module of one chunk that the main stream has not joined; absent: any number.
    std::optional<std::int64_t> max_inflight_offloads = {};
    bool delay_until_cuda_graph = false;  ///< expert groups leave behind the next layer's graph
    /// Policy `stowage`: `modules` have hooks and `min_offloaded_tensor_size` applies, the others do not.
    std::optional<FreeOffload> free = {};

    friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

}  // namespace stowage::types
