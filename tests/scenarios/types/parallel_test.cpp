#include "scenarios/types/parallel.hpp"

#include <gtest/gtest.h>

#include "scenarios/types/scenario.hpp"

namespace stowage::types {
namespace {

using Counts = std::vector<std::int64_t>;

ParallelLayout stages(std::int64_t count) {
    ParallelLayout layout;
    layout.pipeline_model_parallel_size = count;
    return layout;
}

TEST(LayersPerStage, DividesEvenly) { EXPECT_EQ(layers_per_stage(stages(4), 80), (Counts{20, 20, 20, 20})); }

TEST(LayersPerStage, RefusesARest) { EXPECT_EQ(layers_per_stage(stages(4), 94), std::nullopt); }

TEST(LayersPerStage, CountsEmbeddingAndLossAsLayers) {
    // Qwen3-235B on 8 stages: 94 + 2 = 96 = 8 x 12, one fewer at each end.
    ParallelLayout layout = stages(8);
    layout.account_for_embedding_in_pipeline_split = true;
    layout.account_for_loss_in_pipeline_split = true;
    EXPECT_EQ(layers_per_stage(layout, 94), (Counts{11, 12, 12, 12, 12, 12, 12, 11}));
}

TEST(LayersPerStage, TakesGivenEnds) {
    ParallelLayout layout = stages(8);
    layout.decoder_first_pipeline_num_layers = 11;
    layout.decoder_last_pipeline_num_layers = 11;
    EXPECT_EQ(layers_per_stage(layout, 94), (Counts{11, 12, 12, 12, 12, 12, 12, 11}));
    layout.decoder_first_pipeline_num_layers = 95;
    EXPECT_EQ(layers_per_stage(layout, 94), std::nullopt);
}

TEST(ParallelLayout, CountsReplicas) {
    // 256 GPUs: TP2 PP8 DP16; EP32 with whole experts leaves 256 / (32 x 8) = 1 replica of each expert.
    ParallelLayout layout = stages(8);
    layout.tensor_model_parallel_size = 2;
    layout.data_parallel_size = 16;
    layout.expert_model_parallel_size = 32;
    EXPECT_EQ(layout.world_size(), 256);
    EXPECT_EQ(layout.expert_replicas(), 1);
    EXPECT_EQ(layout.dense_replicas(), 16);
}

TEST(Scenario, CountsMicrobatches) {
    Scenario scenario;
    scenario.batch = {.micro_batch_size = 2, .global_batch_size = 256, .seq_length = 4096};
    scenario.parallel.data_parallel_size = 8;
    EXPECT_EQ(scenario.microbatches(), 16);
}

}  // namespace
}  // namespace stowage::types
