#include "planner/rules/chunk_mismatch.hpp"

#include <gtest/gtest.h>

namespace stowage::rules {
namespace {

using types::Module;
using types::ModuleSet;
using types::Scenario;

Scenario job(std::int64_t layers, std::int64_t stages, std::int64_t microbatches) {
    Scenario scenario;
    scenario.model.num_layers = layers;
    scenario.model.num_experts = 4;
    scenario.parallel.pipeline_model_parallel_size = stages;
    scenario.batch.global_batch_size = microbatches;
    return scenario;
}

constexpr ModuleSet kAttention{Module::core_attn, Module::attn_proj};

TEST(ChunkMismatch, NeedsTheFirstGroupToStay) {
    // Four layers of two groups: the first chunk has six eligible, the others eight.
    EXPECT_TRUE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0}));
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0.25}));
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 1}));
    // trunc(6 * (1 - 0.1)) = 5 leaves one of the first chunk; trunc(8 * 0.9) = 7 leaves one of the others.
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0.1}));
}

TEST(ChunkMismatch, NeedsAChunkAfterIt) {
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 1), {.modules = kAttention, .fraction = 0}));
    EXPECT_TRUE(loses_count_of_chunks(job(4, 1, 2), {.modules = kAttention, .fraction = 0}));
}

TEST(ChunkMismatch, StrikesOneLayerPerRankWithTwoGroupsAndSparesOne) {
    // The margin keeps the last group of each name of the first chunk: all that it has.
    EXPECT_TRUE(loses_count_of_chunks(job(1, 1, 2), {.modules = kAttention}));
    EXPECT_TRUE(loses_count_of_chunks(job(2, 2, 2), {.modules = kAttention}));
    EXPECT_FALSE(loses_count_of_chunks(job(1, 1, 2), {.modules = {Module::core_attn}}));
    EXPECT_FALSE(loses_count_of_chunks(job(2, 2, 2), {.modules = {Module::core_attn}}));
}

TEST(ChunkMismatch, SparesGroupsInsideAnOpenNorm) {
    // mlp_norm is open while expert_fc1 and moe_act end; when it ends itself, nothing follows in one layer.
    const ModuleSet experts{Module::mlp_norm, Module::expert_fc1, Module::moe_act};
    EXPECT_FALSE(loses_count_of_chunks(job(1, 1, 2), {.modules = experts}));
    EXPECT_TRUE(loses_count_of_chunks(job(2, 1, 2), {.modules = experts, .fraction = 0}));
}

TEST(ChunkMismatch, FollowsFromADeltaOnLaterRanks) {
    // Any delta keeps the first group of rank 1's first chunk, and with it the count is lost.
    EXPECT_TRUE(
        loses_count_of_chunks(job(8, 2, 4), {.modules = {Module::core_attn}, .delta_bytes_across_pp_ranks = 1}));
    EXPECT_FALSE(
        loses_count_of_chunks(job(8, 1, 4), {.modules = {Module::core_attn}, .delta_bytes_across_pp_ranks = 1}));
}

}  // namespace
}  // namespace stowage::rules
