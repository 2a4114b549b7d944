#include "scenarios/types/parallel.hpp"

#include <gtest/gtest.h>

#include "scenarios/types/scenario.hpp"

namespace stowage::types {
namespace {

TEST(ParallelLayout, CountsReplicas) {
    // 256 GPUs: TP2 PP8 DP16; EP32 with whole experts leaves 256 / (32 x 8) = 1 replica of each expert.
    ParallelLayout layout;
    layout.pipeline_model_parallel_size = 8;
    layout.tensor_model_parallel_size = 2;
    layout.data_parallel_size = 16;
    layout.expert_model_parallel_size = 32;
    EXPECT_EQ(layout.world_size(), 256);
    EXPECT_EQ(layout.expert_replicas(), 1);
    EXPECT_EQ(layout.dense_replicas(), 16);
}

TEST(ParallelLayout, GroupsAsManyMicrobatchesAsThePipelineHasRanks) {
    ParallelLayout layout;
    layout.pipeline_model_parallel_size = 4;
    EXPECT_EQ(layout.microbatch_group_size(), 4);
    layout.microbatch_group_size_per_virtual_pipeline_stage = 6;
    EXPECT_EQ(layout.microbatch_group_size(), 6);
}

TEST(Scenario, CountsMicrobatches) {
    Scenario scenario;
    scenario.batch = {.micro_batch_size = 2, .global_batch_size = 256, .seq_length = 4096};
    scenario.parallel.data_parallel_size = 8;
    EXPECT_EQ(scenario.microbatches(), 16);
}

}  // namespace
}  // namespace stowage::types
