#pragma once

#include <cstdint>
#include <optional>

#include "scenarios/types/module.hpp"

namespace stowage::types {

/// One concrete offload policy that Megatron's flags can express: what `auto` is replaced by.
struct OffloadChoice {
    ModuleSet modules;
    double fraction = 1;                               ///< share of groups, applied per chunk
    std::int64_t min_offloaded_tensor_size = 1048576;  ///< elements
    std::int64_t delta_bytes_across_pp_ranks = 0;
    /// Copies of one module of one chunk that the main stream has not joined; absent: any number.
    std::optional<std::int64_t> max_inflight_offloads = {};
    bool delay_until_cuda_graph = false;  ///< expert groups leave behind the next layer's graph

    friend bool operator==(const OffloadChoice&, const OffloadChoice&) = default;
};

}  // namespace stowage::types
