#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stowage::types {

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
};

/// The layers of each pipeline stage, first to last (one virtual stage per rank).
/// Result: pipeline_model_parallel_size counts whose sum is `num_layers`, or nullopt if they do not divide.
/// Source: Megatron-LM, transformer_block.get_num_layers_to_build: first/last stages given, the rest even; otherwise
/// the embedding and the loss may each count as one layer.
std::optional<std::vector<std::int64_t>> layers_per_stage(const ParallelLayout& layout, std::int64_t num_layers);

}  // namespace stowage::types
