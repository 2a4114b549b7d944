#pragma once

#include <cstdint>

#include "planner/layers/dimensions.hpp"

namespace stowage::layers {

/// Sizes of a Mamba-2 mixer on one rank. `scan_`: inside the convolution and the scan, where context-parallel ranks
/// hold the whole sequence and a share of the heads. A group whose heads lie on several ranks is repeated on each.
/// Source: Megatron-LM, core/ssm/mamba_mixer.py and mamba_context_parallel.py.
struct MambaDimensions {
    static constexpr std::int64_t kTaps = 4;     ///< of the convolution
    static constexpr std::int64_t kChunk = 128;  ///< tokens of one chunk of the scan

    std::int64_t state = 0;
    std::int64_t head_size = 0;
    std::int64_t heads = 0;      ///< of this tensor rank
    std::int64_t groups = 0;     ///< of B and C
    std::int64_t inner = 0;      ///< heads * head_size
    std::int64_t in_width = 0;   ///< gate, x, B, C and one step a head
    std::int64_t convolved = 0;  ///< x, B and C

    std::int64_t scan_sequence = 0;
    std::int64_t scan_tokens = 0;
    std::int64_t scan_heads = 0;
    std::int64_t scan_groups = 0;
    std::int64_t scan_inner = 0;
    std::int64_t scan_in_width = 0;
    std::int64_t scan_convolved = 0;
    std::int64_t chunks = 0;   ///< of one sequence
    std::int64_t repeats = 1;  ///< copies of a group that are sent

    /// Elements of one state for each chunk and head.
    [[nodiscard]] std::int64_t state_elements(std::int64_t micro_batch) const {
        return micro_batch * chunks * scan_heads * head_size * state;
    }
};
MambaDimensions mamba_dimensions(const Dimensions& dimensions, const types::Model& model);

/// Sizes of a gated delta net on one rank; `scan_` as above.
/// Source: Megatron-LM, core/ssm/gated_delta_net.py; flash-linear-attention, ops/gated_delta_rule.
struct DeltaDimensions {
    static constexpr std::int64_t kChunk = 64;

    std::int64_t taps = 0;
    std::int64_t key_size = 0;    ///< of one head of query and key
    std::int64_t value_size = 0;  ///< of one head of value
    std::int64_t key_heads = 0;   ///< of this tensor rank
    std::int64_t value_heads = 0;
    std::int64_t key_width = 0;
    std::int64_t value_width = 0;
    std::int64_t in_width = 0;   ///< query, key, value, gate and two numbers a value head
    std::int64_t convolved = 0;  ///< query, key and value

    std::int64_t scan_sequence = 0;
    std::int64_t scan_tokens = 0;
    std::int64_t scan_key_heads = 0;
    std::int64_t scan_value_heads = 0;
    std::int64_t scan_value_width = 0;
    std::int64_t scan_in_width = 0;
    std::int64_t scan_convolved = 0;
    std::int64_t chunks = 0;
};
DeltaDimensions delta_dimensions(const Dimensions& dimensions, const types::Model& model);

}  // namespace stowage::layers
