#include "planner/layers/states.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Bytes named(const StageLayers& stage, const std::string& part) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.name.find(part) != std::string::npos) total += state.bytes;
    return total;
}

// 64,109,568 parameters; eight replicas share the optimizer. Recorded by Megatron-LM on H100: 581,489,664, where
// gradient accumulation is not fused, so without dummy gradients.
TEST(States, DistributedOptimizerMatchesARecordedRunToTheByte) {
    Scenario scenario = small_gpt();
    scenario.parallel.data_parallel_size = 8;
    scenario.optimizer.use_distributed_optimizer = true;
    const StageLayers stage = build_megatron_stage(scenario, 0);
    const StateBytes bytes = state_bytes(stage);
    EXPECT_EQ(bytes.weights, Bytes{128'219'136});
    EXPECT_EQ(bytes.gradients, Bytes{256'438'272});
    EXPECT_EQ(bytes.optimizer, Bytes{96'164'352});
    EXPECT_EQ(named(stage, "cuBLAS"), Bytes{67'108'864});
    EXPECT_EQ(named(stage, "Transformer Engine"), Bytes{33'555'456});
    EXPECT_EQ(bytes.total() - named(stage, "dummy gradient"), Bytes{581'489'664});
}

// A100: cuBLAS as set by the variable, Transformer Engine 4 MiB. Recorded: 552,128,512.
TEST(States, AnOlderDeviceHasASmallerWorkspace) {
    Scenario scenario = small_gpt();
    scenario.parallel.data_parallel_size = 8;
    scenario.optimizer.use_distributed_optimizer = true;
    scenario.hardware.node.device.compute_capability = 80;
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
    const StageLayers stage = build_megatron_stage(scenario, 0);
    EXPECT_EQ(state_bytes(stage).total() - named(stage, "dummy gradient"), Bytes{552'128'512});
}

// 18 bytes a parameter of 64,109,568, 67,108,864 + 33,555,456 + 3,584.
TEST(States, WithoutTheDistributedOptimizerEveryParameterHasItsOwnTensors) {
    const StageLayers stage = build_megatron_stage(small_gpt(), 0);
    EXPECT_EQ(state_bytes(stage).total() - named(stage, "dummy gradient"), Bytes{1'254'640'128});
    // Parameters: table, positions, 12 layers of 12 tensors, final norm 2: 148; main and two moments for each.
    const auto optimizer = std::count_if(stage.states.begin(), stage.states.end(), [](const StateBuffer& state) {
        return state.what == StateBuffer::What::optimizer;
    });
    EXPECT_EQ(optimizer, 3 * 148);
}

TEST(States, AdamsMomentsComeWithTheFirstStep) {
    const StageLayers stage = build_megatron_stage(small_gpt(), 0);
    Bytes later;
    for (const StateBuffer& state : stage.states)
        if (state.when == StateBuffer::When::first_optimizer_step) later += state.bytes;
    EXPECT_EQ(later, Bytes{8 * 64'109'568});
}

// Stage 3 of 4 holds 35,213,824 parameters; two hidden tensors of 4096 * 512 stay from the last microbatch.
TEST(States, ALaterStageKeepsWhatItReceivedLast) {
    Scenario scenario = small_gpt();
    scenario.parallel.pipeline_model_parallel_size = 4;
    const StageLayers stage = build_megatron_stage(scenario, 3);
    const Bytes expected{18 * 35'213'824 + 67'108'864 + 33'555'456 + 2 * 4'194'304 + 3'584};
    EXPECT_EQ(state_bytes(stage).total() - named(stage, "dummy gradient"), expected);
    EXPECT_EQ(named(build_megatron_stage(scenario, 0), "received"), Bytes{0});
}

// 4096 positions of 128 channels in fp32, and 64 frequencies; every stage has its own.
TEST(States, EveryStageCachesTheAnglesOfTheRotaryEmbedding) {
    Scenario scenario = llama3_70b();
    scenario.parallel.pipeline_model_parallel_size = 4;
    for (const std::int64_t rank : {0, 3}) {
        const StageLayers stage = build_megatron_stage(scenario, rank);
        EXPECT_EQ(named(stage, "rotary angles"), Bytes{4096 * 128 * 4});
        EXPECT_EQ(named(stage, "rotary frequencies"), Bytes{64 * 4});
    }
    EXPECT_EQ(named(build_megatron_stage(small_gpt(), 0), "rotary"), Bytes{0});
}

// Megatron's te_8experts2parallel with grouped GEMM on H100: TP2 EP2 with experts split by 2, dp 4, edp 2, no biases:
// dense 19,801,088 and expert 50,331,648 parameters; the global memory buffer 8192 * 512 * 2.
TEST(States, DenseAndExpertParametersAreShardedOverTheirOwnReplicas) {
    Scenario scenario = small_gpt();
    scenario.model.add_bias_linear = false;
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 1;
    scenario.model.moe_ffn_hidden_size = 2048;
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.expert_model_parallel_size = 2;
    scenario.parallel.expert_tensor_parallel_size = 2;
    scenario.parallel.data_parallel_size = 4;
    scenario.parallel.sequence_parallel = true;
    scenario.optimizer.use_distributed_optimizer = true;
    const StageLayers stage = build_megatron_stage(scenario, 0);
    const StateBytes bytes = state_bytes(stage);
    EXPECT_EQ(bytes.weights, Bytes{140'265'472});
    EXPECT_EQ(bytes.gradients, Bytes{280'530'944});
    EXPECT_EQ(bytes.optimizer, Bytes{361'393'152});
    EXPECT_EQ(named(stage, "Transformer Engine"), Bytes{167'777'280});
    EXPECT_EQ(named(stage, "global memory buffer"), Bytes{2 * 4096 * 512});
}

// Distinct shapes of one rank: qkv 1536 x 512, out 512 x 512, fc1 2048 x 512, fc2 512 x 2048, and the table 50304 x
// 512, which is the output layer's weight too.
TEST(States, FusedGradientAccumulationKeepsOneDummyGradientAShape) {
    const StageLayers stage = build_megatron_stage(small_gpt(), 0);
    const std::int64_t elements = 1536 * 512 + 512 * 512 + 2 * 2048 * 512 + 50304 * 512;
    EXPECT_EQ(named(stage, "dummy gradient"), Bytes{2 * elements});
}

TEST(States, CublasWorkspaceFollowsTheVariableThenTheDevice) {
    Scenario scenario = small_gpt();
    EXPECT_EQ(cublas_workspace(scenario), Bytes{33'554'432});
    scenario.hardware.node.device.compute_capability = 80;
    EXPECT_EQ(cublas_workspace(scenario), Bytes{8'519'680});
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:2:16:8";
    EXPECT_EQ(cublas_workspace(scenario), Bytes{8'519'680});
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
    EXPECT_EQ(cublas_workspace(scenario), Bytes{33'554'432});
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = "4096";
    EXPECT_EQ(cublas_workspace(scenario), Bytes{8'519'680});
}

Parameter row(std::string name, std::int64_t elements) {
    return {std::move(name), {elements}, ParameterKind::dense, 0};
}

// In reverse order, starts at multiples of 64, the end at lcm(6, 128) = 384: c at 0..70, b at 128..138, a at 192..292.
TEST(ParameterBuffer, PadsStartsAndTheEndOfItsBucket) {
    types::ParallelLayout layout;
    layout.data_parallel_size = 6;
    const auto buffers = parameter_buffers({row("a", 100), row("b", 10), row("c", 70)}, layout, true, false);
    ASSERT_EQ(buffers.size(), 1U);
    EXPECT_EQ(buffers[0].elements, 180);
    EXPECT_EQ(buffers[0].padded, 384);
    EXPECT_EQ(buffers[0].shard, 64);
}

// The shared table has a bucket of its own: b ends at 10, its bucket at 128; the table ends at 228, its bucket at 256.
TEST(ParameterBuffer, GivesASharedEmbeddingABucketOfItsOwn) {
    const auto buffers = parameter_buffers({row("embedding.word_embeddings.weight", 100), row("b", 10)},
                                           types::ParallelLayout{}, true, true);
    EXPECT_EQ(buffers.at(0).padded, 256);
}

}  // namespace
}  // namespace stowage::layers::testing
