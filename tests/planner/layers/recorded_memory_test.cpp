#include <gtest/gtest.h>

#include <string>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

// Allocated bytes that Megatron-LM's own functional tests recorded on H100 (August 2026), on the last pipeline rank,
// with CUBLAS_WORKSPACE_CONFIG=:4096:8 and gradient accumulation not fused: the dummy gradients are taken off.
// Predicted peak: static bytes, and the peak of one microbatch's forward and backward by reference counts. Rounding of
// the allocator is not in it; it never makes the recorded figure smaller.

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Bytes static_bytes(const StageLayers& stage) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.name.find("dummy gradient") == std::string::npos && state.when != StateBuffer::When::construction)
            total += state.bytes;
    return total;
}

Bytes peak_bytes(const StageLayers& stage) {
    Replay replay(stage);
    replay.forward();
    replay.backward();
    return static_bytes(stage) + replay.peak();
}

double error(Bytes predicted, std::int64_t recorded) {
    return static_cast<double>(predicted.count) / static_cast<double>(recorded) - 1;
}

/// gpt3_7b_tp4_pp1_memory_speed, 8 GPUs.
Scenario seven_billion_on_four() {
    Scenario scenario = seven_billion();
    scenario.parallel.tensor_model_parallel_size = 4;
    scenario.parallel.expert_tensor_parallel_size = 4;
    scenario.parallel.data_parallel_size = 2;
    scenario.optimizer.use_distributed_optimizer = true;
    return scenario;
}

TEST(RecordedMemory, SevenBillionParametersOnFourTensorRanks) {
    const StageLayers stage = build_megatron_stage(seven_billion_on_four(), 0);
    EXPECT_EQ(rank_parameters(stage), 1'713'299'456);
    // 12 bytes a parameter 20,559,593,472, cuBLAS 67,108,864, Transformer Engine 33,555,456, scalars 3,584.
    EXPECT_EQ(static_bytes(stage), Bytes{20'660'261'376});
    EXPECT_NEAR(error(static_bytes(stage), 20'663'519'232), 0, 0.0002);
    EXPECT_NEAR(error(peak_bytes(stage), 57'143'791'616), 0, 0.0001);
}

/// gpt3_mcore_te_tp1_pp2_resume_torch_dist_rope_embeddings, 8 GPUs: rotary embedding does not add to what is saved.
TEST(RecordedMemory, RotaryEmbeddingOnTwoStages) {
    Scenario scenario = small_gpt();
    scenario.model.position_embedding_type = types::PositionEmbedding::rope;
    scenario.parallel.pipeline_model_parallel_size = 2;
    scenario.parallel.data_parallel_size = 4;
    const StageLayers stage = build_megatron_stage(scenario, 1);
    EXPECT_NEAR(error(static_bytes(stage), 919'557'120), 0, 0.008);
    EXPECT_NEAR(error(peak_bytes(stage), 2'598'238'208), 0, 0.003);
}

/// gpt3_mcore_te_tp4_pp1_resume_torch_dist_qk_layernorm_test_mode, 8 GPUs.
TEST(RecordedMemory, NormsOverHeads) {
    Scenario scenario = small_gpt();
    scenario.model.qk_layernorm = true;
    scenario.parallel.tensor_model_parallel_size = 4;
    scenario.parallel.expert_tensor_parallel_size = 4;
    scenario.parallel.data_parallel_size = 2;
    const StageLayers stage = build_megatron_stage(scenario, 0);
    EXPECT_NEAR(error(static_bytes(stage), 398'273'024), 0, 0.002);
    EXPECT_NEAR(error(peak_bytes(stage), 1'177'314'304), 0, 0.02);
}

/// gpt3_mcore_te_tp1_pp4_resume_torch_dist_swiglu, 8 GPUs: ffn floor(4 * 512 * 2/3 / 64) * 64 = 1344.
TEST(RecordedMemory, GatedLayersOnFourStages) {
    Scenario scenario = small_gpt();
    scenario.model.activation = types::Activation::swiglu;
    scenario.model.ffn_hidden_size = 1344;
    scenario.parallel.pipeline_model_parallel_size = 4;
    scenario.parallel.data_parallel_size = 2;
    const StageLayers stage = build_megatron_stage(scenario, 3);
    EXPECT_NEAR(error(static_bytes(stage), 745'732'608), 0, 0.007);
    EXPECT_NEAR(error(peak_bytes(stage), 2'211'485'184), 0, 0.004);
}

}  // namespace
}  // namespace stowage::layers::testing
