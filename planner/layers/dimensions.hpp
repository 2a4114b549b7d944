#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

using Shape = std::vector<std::int64_t>;

/// What one rank sees of a scenario: every size that a script needs, sharded, computed once.
/// Units: elements and tokens. `tensor`-sharded sizes are this rank's share.
struct Dimensions {
    std::int64_t micro_batch = 0;
    std::int64_t sequence = 0;       ///< of this rank: seq_length / context
    std::int64_t full_sequence = 0;  ///< over all context-parallel ranks
    std::int64_t hidden = 0;
    std::int64_t tensor = 1;         ///< tensor-parallel ranks
    std::int64_t context = 1;        ///< context-parallel ranks
    std::int64_t expert = 1;         ///< expert-parallel ranks
    std::int64_t expert_tensor = 1;  ///< tensor-parallel ranks inside an expert
    bool sequence_parallel = false;  ///< in force: asked for, and more than one tensor-parallel rank
    std::int64_t tokens = 0;         ///< of a microbatch on this rank: micro_batch * sequence
    std::int64_t local_tokens = 0;   ///< outside attention and linears: tokens / tensor with sequence parallelism

    std::int64_t heads = 0;      ///< of this rank
    std::int64_t groups = 0;     ///< key/value heads of this rank; the heads with multi-latent attention
    std::int64_t head_size = 0;  ///< of query and key
    std::int64_t value_head_size =
        0;                          ///< of value and attention's output; another one only with multi-latent attention
    std::int64_t query_width = 0;   ///< heads * head_size
    std::int64_t key_width = 0;     ///< groups * head_size
    std::int64_t value_width = 0;   ///< groups * value_head_size
    std::int64_t output_width = 0;  ///< heads * value_head_size: what the output projection takes
    std::int64_t qkv_width = 0;     ///< the packed output of the qkv linear, the output gate included
    std::int64_t ffn = 0;           ///< dense feed-forward width of this rank
    std::int64_t fc1_width = 0;     ///< ffn, twice that when gated
    std::int64_t padded_vocabulary = 0;
    std::int64_t vocabulary = 0;  ///< padded, this rank's share

    std::int64_t shared_ffn = 0;  ///< width of the shared expert, this rank's share; 0: there is none
    std::int64_t shared_fc1_width = 0;
    std::int64_t routed_width = 0;  ///< of a token on its way to the experts and inside: hidden, or the latent size
    std::int64_t capacity = 0;      ///< tokens that one expert takes from one rank; 0: without limit
    std::int64_t experts = 0;       ///< of the model
    std::int64_t local_experts = 0;
    std::int64_t topk = 0;
    std::int64_t sent_tokens = 0;  ///< token copies that this rank sends: local_tokens * topk, or up to the capacity
    std::int64_t received_tokens =
        0;                           ///< that it gets from its expert-parallel group; the most loaded rank's if skewed
    std::int64_t expert_tokens = 0;  ///< that its experts work on: received_tokens * expert_tensor
    std::int64_t expert_ffn = 0;
    std::int64_t expert_fc1_width = 0;

    /// A hidden-state tensor as it lies between layers, [s/tp or s, b, h].
    [[nodiscard]] Shape hidden_shape() const { return {local_tokens / micro_batch, micro_batch, hidden}; }
    /// A tensor over all tokens of the microbatch, [s, b, width].
    [[nodiscard]] Shape full_shape(std::int64_t width) const { return {sequence, micro_batch, width}; }
    /// Elements of one hidden-state tensor.
    [[nodiscard]] std::int64_t hidden_elements() const { return local_tokens * hidden; }
};

/// The vocabulary rounded up to a multiple of make_vocab_size_divisible_by * tensor-parallel size.
std::int64_t padded_vocabulary(const types::Scenario& scenario);

/// Expects a scenario that require_supported accepts.
Dimensions dimensions_of(const types::Scenario& scenario);

}  // namespace stowage::layers
