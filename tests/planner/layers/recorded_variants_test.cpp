#include <gtest/gtest.h>

#include <string>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

// States of jobs that differ from the usual one in an argument, as Megatron-LM's recorded runs show them.

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using When = StateBuffer::When;

Bytes named(const StageLayers& stage, const std::string& part) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.name.find(part) != std::string::npos) total += state.bytes;
    return total;
}

Bytes lasting(const StageLayers& stage, When when) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.when == when) total += state.bytes;
    return total;
}

Scenario staged(std::int64_t tensor, std::int64_t pipeline) {
    Scenario scenario = small_gpt();
    scenario.parallel.tensor_model_parallel_size = tensor;
    scenario.parallel.expert_tensor_parallel_size = tensor;
    scenario.parallel.pipeline_model_parallel_size = pipeline;
    scenario.batch.global_batch_size = 32;
    return scenario;
}

Scenario local(Scenario scenario) {
    scenario.model.transformer_impl = types::TransformerImpl::local;
    return scenario;
}

// Eight microbatches, two of which wait at once: logits of 4096 tokens and 50432 / 2 entries in bf16, and hidden states
// of 4096 * 512. They come and go within the step.
TEST(RecordedVariants, DeferredGradientsOfTheEmbeddingWaitWithinAStep) {
    Scenario scenario = staged(2, 2);
    scenario.parallel.defer_embedding_wgrad_compute = true;
    scenario.parallel.wgrad_deferral_limit = 2;
    const StageLayers last = build_megatron_stage(scenario, 1);
    EXPECT_EQ(lasting(last, When::within_steps), Bytes{2 * (2 * 4096 * 25'216 + 2 * 4096 * 512)});
    EXPECT_EQ(lasting(build_megatron_stage(scenario, 0), When::within_steps), Bytes{0});
    EXPECT_EQ(named(last, "deferred"), lasting(last, When::within_steps));
    const Bytes with = state_bytes(last).total();
    scenario.parallel.defer_embedding_wgrad_compute = false;
    EXPECT_EQ(with, state_bytes(build_megatron_stage(scenario, 1)).total());
}

TEST(RecordedVariants, NoLimitDefersAllMicrobatchesButTheLast) {
    Scenario scenario = staged(1, 1);
    scenario.parallel.defer_embedding_wgrad_compute = true;
    const StageLayers stage = build_megatron_stage(scenario, 0);
    EXPECT_EQ(named(stage, "deferred logits gradient"), Bytes{7LL * 2 * 4096 * 50'304});
}

// The tensors that the model is built with, 2 bytes for each of 64,109,568 parameters, give way to the buffers.
TEST(RecordedVariants, WithTheDistributedOptimizerParametersMoveIntoABuffer) {
    Scenario scenario = small_gpt();
    scenario.optimizer.use_distributed_optimizer = true;
    EXPECT_EQ(lasting(build_megatron_stage(scenario, 0), When::construction), Bytes{2 * 64'109'568});
    EXPECT_EQ(lasting(build_megatron_stage(small_gpt(), 0), When::construction), Bytes{0});
}

// Three virtual stages each keep two hidden tensors between steps; within one the schedule keeps two in all.
TEST(RecordedVariants, InterleavedStagesKeepTheInputThatTheWarmUpEndedWith) {
    Scenario scenario = staged(1, 4);
    scenario.parallel.num_virtual_stages_per_pipeline_rank = 3;
    const StageLayers stage = build_megatron_stage(scenario, 3);
    EXPECT_EQ(lasting(stage, When::between_steps), Bytes{6 * 4'194'304});
    EXPECT_EQ(lasting(stage, When::within_steps), Bytes{2 * 4'194'304});
    scenario.parallel.overlap_p2p_comm = false;
    EXPECT_EQ(lasting(build_megatron_stage(scenario, 3), When::within_steps), Bytes{0});
}

// tp1_pp1_resume_torch_dist_dist_optimizer_overlap_grad_reduce_param_gather: fp16, layers of Megatron's own, 4 * 8
// matrices of 1024 * 1024 scores in the global memory buffer, recorded without a workspace of Transformer Engine.
TEST(RecordedVariants, MegatronsOwnLayersKeepScoresInTheGlobalBuffer) {
    const StageLayers stage = build_megatron_stage(local(small_gpt()), 0);
    EXPECT_EQ(named(stage, "global memory buffer"), Bytes{2 * 32 * 1024 * 1024});
    EXPECT_EQ(named(stage, "Transformer Engine"), Bytes{0});
    EXPECT_EQ(named(stage, "cuBLAS"), Bytes{2 * 33'554'432});
    EXPECT_EQ(named(build_megatron_stage(local(staged(1, 2)), 0), "cuBLAS"), Bytes{2 * 33'554'432});
    EXPECT_EQ(named(build_megatron_stage(staged(1, 2), 0), "cuBLAS"), Bytes{0});
}

// The widened softmax is 4 bytes an element where the fused one is 2: two more for 4 * 8 * 1024 * 1024.
TEST(RecordedVariants, SoftmaxThatIsNotFusedIsSavedInFp32) {
    Scenario scenario = local(small_gpt());
    const Bytes fused = saved_bytes(script_of(scenario, ScriptKind::dense_layer));
    scenario.model.masked_softmax_fusion = false;
    EXPECT_EQ(saved_bytes(script_of(scenario, ScriptKind::dense_layer)) - fused, Bytes{2 * 32 * 1024 * 1024});
}

TEST(RecordedVariants, ExpertsOneAfterAnotherNeedNoGroupedWorkspaces) {
    Scenario scenario = small_moe();
    EXPECT_EQ(named(build_megatron_stage(scenario, 0), "grouped GEMM"), Bytes{4 * (33'554'432 + 1024)});
    scenario.model.moe_grouped_gemm = false;
    EXPECT_EQ(named(build_megatron_stage(scenario, 0), "grouped GEMM"), Bytes{0});
    scenario.model.normalization = types::Normalization::LayerNorm;
    EXPECT_EQ(named(build_megatron_stage(local(scenario), 0), "Transformer Engine"), Bytes{33'554'432 + 1024});
}

// 2048 tokens, two experts each, 1024 wide, in bf16: what index_add sums.
TEST(RecordedVariants, InDeterministicModeTheExpertsOutputIsSaved) {
    Scenario scenario = small_moe();
    const Bytes usual = saved_bytes(script_of(scenario, ScriptKind::moe_layer));
    scenario.model.deterministic_mode = true;
    EXPECT_EQ(saved_bytes(script_of(scenario, ScriptKind::moe_layer)) - usual, Bytes{2 * 2 * 2048 * 1024});
    scenario.model.moe_permute_fusion = true;
    EXPECT_EQ(saved_bytes(script_of(scenario, ScriptKind::moe_layer)), usual);
}

TEST(RecordedVariants, OverlappedTransfersHaveAWorkspaceThreeTimesAsLarge) {
    Scenario scenario = staged(2, 1);
    scenario.parallel.tp_comm_overlap = true;
    EXPECT_EQ(named(build_megatron_stage(scenario, 0), "overlapped transfers"), Bytes{3 * (33'554'432 + 1024)});
}

}  // namespace
}  // namespace stowage::layers::testing
