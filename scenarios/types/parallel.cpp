#include "scenarios/types/parallel.hpp"

namespace stowage::types {
namespace {

std::optional<std::vector<std::int64_t>> checked(std::vector<std::int64_t> counts) {
    for (std::int64_t count : counts)
        if (count < 0) return std::nullopt;
    return counts;
}

std::optional<std::vector<std::int64_t>> with_given_ends(const ParallelLayout& layout, std::int64_t num_layers) {
    const auto& first = layout.decoder_first_pipeline_num_layers;
    const auto& last = layout.decoder_last_pipeline_num_layers;
    const std::int64_t stages = layout.pipeline_model_parallel_size;
    const std::int64_t free_stages = stages - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t free_layers = num_layers - first.value_or(0) - last.value_or(0);
    if (free_stages < 0 || free_layers < 0) return std::nullopt;
    if (free_stages == 0 && free_layers != 0) return std::nullopt;
    if (free_stages > 0 && free_layers % free_stages != 0) return std::nullopt;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), free_stages > 0 ? free_layers / free_stages : 0);
    if (first) counts.front() = *first;
    if (last) counts.back() = *last;
    return checked(counts);
}

std::optional<std::vector<std::int64_t>> even(const ParallelLayout& layout, std::int64_t num_layers) {
    const std::int64_t stages = layout.pipeline_model_parallel_size;
    const std::int64_t embedding = layout.account_for_embedding_in_pipeline_split ? 1 : 0;
    const std::int64_t loss = layout.account_for_loss_in_pipeline_split ? 1 : 0;
    const std::int64_t counted = num_layers + embedding + loss;
    if (counted % stages != 0) return std::nullopt;
    std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), counted / stages);
    counts.front() -= embedding;
    counts.back() -= loss;
    return checked(counts);
}

}  // namespace

std::optional<std::vector<std::int64_t>> layers_per_stage(const ParallelLayout& layout, std::int64_t num_layers) {
    if (layout.pipeline_model_parallel_size < 1) return std::nullopt;
    if (layout.decoder_first_pipeline_num_layers || layout.decoder_last_pipeline_num_layers)
        return with_given_ends(layout, num_layers);
    return even(layout, num_layers);
}

}  // namespace stowage::types
