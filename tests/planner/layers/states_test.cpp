#include "planner/layers/states.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/padding.hpp"
#include "planner/layers/states_workspaces.hpp"
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

/// Bytes of weights, gradients and optimizer states for each parameter of a rank.
double bytes_a_parameter(const Scenario& scenario, Bytes (*of)(const StateBytes&)) {
    const StageLayers stage = build_megatron_stage(scenario, 0);
    return static_cast<double>(of(state_bytes(stage)).count) / static_cast<double>(rank_parameters(stage));
}
Bytes model_states(const StateBytes& bytes) { return bytes.weights + bytes.gradients + bytes.optimizer; }

/// small_gpt on `replicas` with the distributed optimizer.
Scenario sharded_gpt(std::int64_t replicas) {
    Scenario scenario = small_gpt();
    scenario.parallel.data_parallel_size = replicas;
    scenario.optimizer.use_distributed_optimizer = true;
    return scenario;
}

// bf16: parameter 2, fp32 gradient 4, main parameter and two moments 12, shared by the replicas with the distributed
// optimizer. Buffers are padded by less than a thousand elements of 64 million.
TEST(States, TakeEighteenBytesAParameterOrSixAndAShareOfTwelve) {
    EXPECT_DOUBLE_EQ(bytes_a_parameter(small_gpt(), model_states), 18);
    EXPECT_NEAR(bytes_a_parameter(sharded_gpt(8), model_states), 6 + 12.0 / 8, 1e-4);
    EXPECT_NEAR(bytes_a_parameter(sharded_gpt(64), model_states), 6 + 12.0 / 64, 1e-4);
}

// Eight replicas in two instances: each instance of four holds all states, 12 / 4.
TEST(States, AreAsManyTimesLargerAsThereAreOptimizerInstances) {
    Scenario scenario = sharded_gpt(8);
    scenario.optimizer.num_distributed_optimizer_instances = 2;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 6 + 12.0 / 4, 1e-4);
}

// fp16 gradients are summed in fp16, 2 bytes; their fp32 copies, 4 or 4 / 8, live from one step to the start of the
// next.
TEST(States, OfFp16KeepAnFp32CopyOfTheGradientsBetweenSteps) {
    Scenario scenario = small_gpt();
    scenario.precision = types::Precision::fp16;
    EXPECT_DOUBLE_EQ(bytes_a_parameter(scenario, model_states), 2 + 2 + 12 + 4);
    Bytes kept;
    for (const StateBuffer& state : build_megatron_stage(scenario, 0).states)
        if (state.when == StateBuffer::When::between_steps) kept += state.bytes;
    EXPECT_EQ(kept, Bytes{4 * 64'109'568});
    scenario = sharded_gpt(8);
    scenario.precision = types::Precision::fp16;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 2 + 2 + (12 + 4) / 8.0, 1e-4);
}

// grad_reduce_in_bf16: buffer 2 bytes, and plain Adam needs an fp32 copy of its shard, 4 / 8.
TEST(States, GradientsReducedInBf16AreCopiedForAdam) {
    Scenario scenario = sharded_gpt(8);
    scenario.optimizer.grad_reduce_in_bf16 = true;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 2 + 2 + (12 + 4) / 8.0, 1e-4);
}

// The precision-aware optimizer reads the bf16 buffer itself; of an fp32 main parameter it keeps the 16 bits that the
// bf16 parameter lacks: 2; bf16 moments 2 + 2.
TEST(States, ThePrecisionAwareOptimizerHoldsWhatItsTypesSay) {
    Scenario scenario = sharded_gpt(8);
    scenario.optimizer.use_precision_aware_optimizer = true;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 2 + 4 + (2 + 8) / 8.0, 1e-4);
    scenario.optimizer.exp_avg_dtype = types::DataType::bf16;
    scenario.optimizer.exp_avg_sq_dtype = types::DataType::bf16;
    scenario.optimizer.main_grads_dtype = types::DataType::bf16;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 2 + 2 + (2 + 4) / 8.0, 1e-4);
    // fp16 main parameters are whole; fp8 moments take a byte each.
    scenario.optimizer.main_params_dtype = types::DataType::fp16;
    scenario.optimizer.exp_avg_dtype = types::DataType::fp8;
    scenario.optimizer.exp_avg_sq_dtype = types::DataType::fp8;
    EXPECT_NEAR(bytes_a_parameter(scenario, model_states), 2 + 2 + (2 + 2) / 8.0, 1e-4);
}

// Momentum alone: 2 + 4 + 4 + 4.
TEST(States, SgdHasOneMomentum) {
    Scenario scenario = small_gpt();
    scenario.optimizer.optimizer = types::OptimizerKind::sgd;
    EXPECT_DOUBLE_EQ(bytes_a_parameter(scenario, model_states), 14);
}

// Without fusion autograd makes each gradient itself: nothing is cached. The other states are as before, which is what
// Megatron's test recorded on H100: 581,489,664.
TEST(States, HoldNoDummyGradientsWithoutFusedAccumulation) {
    Scenario scenario = sharded_gpt(8);
    scenario.optimizer.gradient_accumulation_fusion = false;
    EXPECT_EQ(state_bytes(build_megatron_stage(scenario, 0)).total(), Bytes{581'489'664});
}

Scenario gpt_with_states_on_host(double fraction) {
    Scenario scenario = sharded_gpt(8);
    scenario.optimizer.use_precision_aware_optimizer = true;
    scenario.optimizer.optimizer_cpu_offload = true;
    scenario.optimizer.optimizer_offload_fraction = fraction;
    scenario.hardware.node.gpus_per_node = 8;
    scenario.hardware.node.host.memory_bandwidth = types::BytesPerSecond{400e9};
    const types::CopyCurve curve({{Bytes{1'000}, Nanoseconds{20}}, {Bytes{100'000'000}, Nanoseconds{2'000'000}}});
    scenario.hardware.node.copy.device_to_host = curve;
    scenario.hardware.node.copy.host_to_device = curve;
    return scenario;
}

// An eighth of 64,109,568 elements, all of it on the host: the device keeps parameters and gradients, page-locked are
// an fp32 parameter and gradient, ordinary memory holds the moments.
TEST(States, OnTheHostLeaveParametersAndGradientsOnTheDevice) {
    const StateBytes bytes = state_bytes(build_megatron_stage(gpt_with_states_on_host(1), 0));
    const double owned = 64'109'568 / 8.0;
    EXPECT_NEAR(static_cast<double>(bytes.optimizer.count), 0, 12 * 1000);  // the padding of the shard
    EXPECT_NEAR(static_cast<double>(bytes.pinned_host.count), 8 * owned, 8 * 1000);
    EXPECT_NEAR(static_cast<double>(bytes.pageable_host.count), 8 * owned, 8 * 1000);
    EXPECT_EQ(bytes.total(), bytes.weights + bytes.gradients + bytes.optimizer + bytes.workspace);
}

// Whole parameters move until the fraction is reached, so at most one more: the first shard of the reversed order holds
// the last layers, whose largest weight has 2048 * 512 elements.
TEST(States, OnTheHostAreWholeParametersUpToTheFraction) {
    const StateBytes bytes = state_bytes(build_megatron_stage(gpt_with_states_on_host(0.5), 0));
    const std::int64_t half = 64'109'568 / 8 / 2;
    EXPECT_GE(bytes.pinned_host.count, 8 * half);
    EXPECT_LT(bytes.pinned_host.count, 8 * (half + 2048 * 512));
    // What stays has fp32 main parameters and moments, 12 bytes; what went 8 page-locked and 8 others.
    EXPECT_NEAR(static_cast<double>(bytes.optimizer.count) / 12 + static_cast<double>(bytes.pinned_host.count) / 8,
                64'109'568 / 8.0, 1000);
}

// Pinned blocks are powers of two: never less than asked for, less than twice that.
TEST(States, OnTheHostTakeBlocksOfPowersOfTwo) {
    const StageLayers stage = build_megatron_stage(gpt_with_states_on_host(1), 0);
    EXPECT_GT(pinned_state_blocks(stage), state_bytes(stage).pinned_host);
    EXPECT_LT(pinned_state_blocks(stage).count, 2 * state_bytes(stage).pinned_host.count);
}

Nanoseconds host_update(const Scenario& scenario) {
    for (const Kernel& kernel : build_megatron_stage(scenario, 0).optimizer.kernels)
        if (kernel.name == "optimizer.host_update") return *kernel.measured;
    return Nanoseconds{0};
}

// Copies at 50 GB/s, 4 bytes an element each way: 0.16 ns; Adam moves 28 bytes at 400 / 8 = 50 GB/s: 0.56 ns. One after
// the other 0.72 ns an element; overlapped the slowest alone, and a little for the first and the last parameter.
TEST(States, OnTheHostCostCopiesAndAnUpdateBoundByHostMemory) {
    Scenario scenario = gpt_with_states_on_host(1);
    const double owned = 64'109'568 / 8.0;
    EXPECT_NEAR(static_cast<double>(host_update(scenario).count()), 0.72 * owned, 0.02 * owned);
    scenario.optimizer.overlap_cpu_optimizer_d2h_h2d = true;
    const double overlapped = static_cast<double>(host_update(scenario).count());
    EXPECT_GT(overlapped, 0.56 * owned);
    EXPECT_LT(overlapped, 0.62 * owned);
    EXPECT_EQ(host_update(small_gpt()), Nanoseconds{0});
}

Parameter row(std::string name, std::int64_t elements) {
    return {std::move(name), {elements}, ParameterKind::dense, 0};
}

Scenario distributed_over(std::int64_t replicas) {
    Scenario scenario = llama3_70b();
    scenario.parallel.data_parallel_size = replicas;
    scenario.optimizer.use_distributed_optimizer = true;
    return scenario;
}

// In reverse order, starts at multiples of 64, the end at lcm(6, 128) = 384: c at 0..70, b at 128..138, a at 192..292.
TEST(ParameterBuffer, PadsStartsAndTheEndOfItsBucket) {
    const auto buffers = parameter_buffers(distributed_over(6), 0, {{row("a", 100), row("b", 10), row("c", 70)}});
    ASSERT_EQ(buffers.size(), 1U);
    EXPECT_EQ(buffers[0].elements, 180);
    EXPECT_EQ(buffers[0].padded, 384);
    EXPECT_EQ(buffers[0].shard, 64);
    // The first 64 of 384 are of c.
    ASSERT_EQ(buffers[0].pieces.size(), 1U);
    EXPECT_EQ(buffers[0].pieces[0].name, "c");
    EXPECT_EQ(buffers[0].pieces[0].elements, 64);
}

// The shared table has a bucket of its own: b ends at 10, its bucket at 128; the table ends at 228, its bucket at 256.
TEST(ParameterBuffer, GivesASharedEmbeddingABucketOfItsOwn) {
    Scenario scenario = distributed_over(1);
    scenario.model.untie_embeddings_and_output_weights = false;
    scenario.parallel.pipeline_model_parallel_size = 2;
    const auto buffers = parameter_buffers(scenario, 0, {{row("embedding.word_embeddings.weight", 100), row("b", 10)}});
    EXPECT_EQ(buffers.at(0).padded, 256);
    EXPECT_EQ(buffers.at(0).buckets, (std::vector<std::int64_t>{128, 128}));
}

// One buffer for each virtual stage, each padded by itself: 100 and 10 elements end at 128 twice, not 110 at 128 once.
TEST(ParameterBuffer, IsOneForEachVirtualStage) {
    const auto buffers = parameter_buffers(distributed_over(2), 1, {{row("a", 100)}, {row("b", 10)}});
    ASSERT_EQ(buffers.size(), 2U);
    EXPECT_EQ(buffers[0].padded + buffers[1].padded, 256);
    EXPECT_EQ(buffers[1].chunk, 1U);
}

// Buckets are closed by the parameter that reaches 40e6 elements: 30e6 + 30e6, then 30e6. Both lengths divide by 128.
// Only the first virtual stage of the first rank has several.
TEST(ParameterBuffer, HasSeveralBucketsWhereReductionOverlapsTheBackward) {
    Scenario scenario = distributed_over(2);
    scenario.optimizer.overlap_grad_reduce = true;
    const std::vector<Parameter> three{row("a", 30'000'000), row("b", 30'000'000), row("c", 30'000'000)};
    const auto buffers = parameter_buffers(scenario, 0, {three, three});
    EXPECT_EQ(buffers.at(0).buckets, (std::vector<std::int64_t>{60'000'000, 30'000'000}));
    EXPECT_EQ(buffers.at(1).buckets, (std::vector<std::int64_t>{90'000'000}));
    EXPECT_EQ(parameter_buffers(scenario, 1, {three}).at(0).buckets.size(), 1U);
    // The first of two ranks owns the first half of either bucket: c, and half of a.
    ASSERT_EQ(buffers[0].pieces.size(), 2U);
    EXPECT_EQ(buffers[0].pieces[0].elements, 30'000'000);
    EXPECT_EQ(buffers[0].pieces[1].name, "a");
    EXPECT_EQ(buffers[0].pieces[1].elements, 15'000'000);
    // From 40 replicas on the size grows with them: 1e6 * 100 elements are never reached here.
    scenario.parallel.data_parallel_size = 100;
    EXPECT_EQ(parameter_buffers(scenario, 0, {three}).at(0).buckets.size(), 1U);
}

}  // namespace
}  // namespace stowage::layers::testing
