#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/types/enum_names.hpp"

namespace stowage::types {

/// How context-parallel ranks exchange keys and values.
enum class ContextCommunication : std::uint8_t { p2p, all_gather, a2a, a2a_p2p };
template <>
struct EnumNames<ContextCommunication> {
    static constexpr std::array<std::pair<ContextCommunication, std::string_view>, 4> values{
        {{ContextCommunication::p2p, "p2p"},
         {ContextCommunication::all_gather, "allgather"},
         {ContextCommunication::a2a, "a2a"},
         {ContextCommunication::a2a_p2p, "a2a+p2p"}}};
};

enum class TokenDispatcher : std::uint8_t { alltoall, allgather, flex };
template <>
struct EnumNames<TokenDispatcher> {
    static constexpr std::array<std::pair<TokenDispatcher, std::string_view>, 3> values{
        {{TokenDispatcher::alltoall, "alltoall"},
         {TokenDispatcher::allgather, "allgather"},
         {TokenDispatcher::flex, "flex"}}};
};

/// Whose kernels the flex dispatcher moves tokens with.
enum class FlexDispatcher : std::uint8_t { deepep, hybridep };
template <>
struct EnumNames<FlexDispatcher> {
    static constexpr std::array<std::pair<FlexDispatcher, std::string_view>, 2> values{
        {{FlexDispatcher::deepep, "deepep"}, {FlexDispatcher::hybridep, "hybridep"}}};
};

/// How a model is spread over GPUs, in Megatron's names. Ranks are numbered tensor, context, data, pipeline (fastest
/// first); expert parallelism lies inside data x context x tensor.
struct ParallelLayout {
    std::int64_t tensor_model_parallel_size = 1;
    std::int64_t pipeline_model_parallel_size = 1;
    std::int64_t num_virtual_stages_per_pipeline_rank = 1;
    std::int64_t context_parallel_size = 1;
    std::int64_t expert_model_parallel_size = 1;
    std::int64_t expert_tensor_parallel_size = 1;  ///< the reader's default is the tensor-parallel size, as Megatron's
    std::int64_t data_parallel_size = 1;
    bool sequence_parallel = false;
    std::optional<std::int64_t> decoder_first_pipeline_num_layers;
    std::optional<std::int64_t> decoder_last_pipeline_num_layers;
    bool account_for_embedding_in_pipeline_split = false;
    bool account_for_loss_in_pipeline_split = false;
    std::string pipeline_model_parallel_layout;  ///< Megatron's layout string; empty: none
    std::optional<std::int64_t> microbatch_group_size_per_virtual_pipeline_stage;
    bool overlap_p2p_comm = true;  ///< interleaved stages only: transfers beside compute, not after it
    ContextCommunication cp_comm_type = ContextCommunication::p2p;
    std::vector<std::int64_t> hierarchical_context_parallel_sizes;  ///< a2a+p2p: inner (a2a) ranks, outer (p2p) ranks
    TokenDispatcher moe_token_dispatcher_type = TokenDispatcher::alltoall;
    FlexDispatcher moe_flex_dispatcher_backend = FlexDispatcher::deepep;  ///< flex only
    bool moe_shared_expert_overlap = false;                               ///< shared experts beside the dispatch
    bool overlap_moe_expert_parallel_comm = false;
    bool delay_wgrad_compute = false;
    bool tp_comm_overlap = false;                ///< tensor-parallel transfers inside the linears' GEMMs
    bool defer_embedding_wgrad_compute = false;  ///< the output layer's weight gradients run in the pipeline's flush
    std::int64_t wgrad_deferral_limit = 0;       ///< of so many microbatches at most; 0: of all

    /// Megatron's default: the pipeline's size.
    [[nodiscard]] std::int64_t microbatch_group_size() const {
        return microbatch_group_size_per_virtual_pipeline_stage.value_or(pipeline_model_parallel_size);
    }
    /// GPUs of the whole job.
    [[nodiscard]] std::int64_t world_size() const {
        return tensor_model_parallel_size * pipeline_model_parallel_size * context_parallel_size * data_parallel_size;
    }
    /// Ranks that hold the same dense parameters: data x context.
    [[nodiscard]] std::int64_t dense_replicas() const { return data_parallel_size * context_parallel_size; }
    /// Ranks that hold the same expert parameters.
    [[nodiscard]] std::int64_t expert_replicas() const {
        return world_size() / (expert_tensor_parallel_size * expert_model_parallel_size * pipeline_model_parallel_size);
    }
    /// Sequence parallelism does nothing with one tensor-parallel rank; Megatron switches it off.
    [[nodiscard]] std::int64_t sequence_shards() const { return sequence_parallel ? tensor_model_parallel_size : 1; }
    friend bool operator==(const ParallelLayout&, const ParallelLayout&) = default;
};

}  // namespace stowage::types
