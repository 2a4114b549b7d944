// What a scenario may say about its layout, optimizer and precision, and what Megatron makes of it.
#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/stages.hpp"
#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

using types::DataType;

class LayoutLanguage : public ::testing::Test {
protected:
    LayoutLanguage() { write_valid_files(); }

    /// The valid scenario, of 2 x 2 x 4 ranks and 4 layers, with these keys in `parallel`.
    static types::ParallelLayout parallel(const std::string& keys, const std::string& model = "model.yaml") {
        write_valid_files();
        edit_file("scenario.yaml", "model: model.yaml", "model: " + model);
        edit_file("scenario.yaml", "  sequence_parallel: true\n", "  sequence_parallel: true\n" + keys);
        return read_scenario("scenario.yaml").parallel;
    }
    static types::Scenario training(const std::string& keys) {
        write_valid_files();
        edit_file("scenario.yaml", "objective: step_time\n", keys);
        return read_scenario("scenario.yaml");
    }

private:
    TemporaryFolder folder_;
};

TEST_F(LayoutLanguage, HasOneVirtualStageUnlessItSaysMore) {
    EXPECT_EQ(parallel("").num_virtual_stages_per_pipeline_rank, 1);
    EXPECT_EQ(parallel("  num_virtual_stages_per_pipeline_rank: null\n").num_virtual_stages_per_pipeline_rank, 1);
    EXPECT_EQ(parallel("  num_virtual_stages_per_pipeline_rank: 2\n").num_virtual_stages_per_pipeline_rank, 2);
}

TEST_F(LayoutLanguage, CountsVirtualStagesFromTheLayersOfOne) {
    // 4 layers on 2 ranks: 2 each, so 2 virtual stages of 1.
    EXPECT_EQ(parallel("  num_layers_per_virtual_pipeline_stage: 1\n").num_virtual_stages_per_pipeline_rank, 2);
    EXPECT_EQ(parallel("  num_layers_per_virtual_pipeline_stage: 2\n").num_virtual_stages_per_pipeline_rank, 1);
    // 6 + 2 = 8 on 2 ranks: 4 each, so 2 of 2.
    const types::ParallelLayout counted = parallel(
        "  num_layers_per_virtual_pipeline_stage: 2\n  account_for_embedding_in_pipeline_split: true\n"
        "  account_for_loss_in_pipeline_split: true\n",
        "{from: model.yaml, num_layers: 6}");
    EXPECT_EQ(counted.num_virtual_stages_per_pipeline_rank, 2);
}

TEST_F(LayoutLanguage, CountsVirtualStagesOfALayoutString) {
    EXPECT_EQ(parallel("  pipeline_model_parallel_layout: Ett|ttL\n").num_virtual_stages_per_pipeline_rank, 1);
    // Et | t | t | t | m | L: six stages on two ranks.
    EXPECT_EQ(
        parallel("  pipeline_model_parallel_layout: E(t|)*4m|L\n  microbatch_group_size_per_virtual_pipeline_stage: "
                 "2\n",
                 "{from: model.yaml, mtp_num_layers: 1}")
            .num_virtual_stages_per_pipeline_rank,
        3);
}

TEST_F(LayoutLanguage, TakesTheStagesOfAHybridPattern) {
    const types::ParallelLayout layout = parallel("", "{from: model.yaml, hybrid_layer_pattern: \"M|*M||E/*E\"}");
    EXPECT_EQ(layout.pipeline_model_parallel_layout, "Et|tt||tmL");
    EXPECT_EQ(layout.num_virtual_stages_per_pipeline_rank, 2);
}

TEST_F(LayoutLanguage, ReadsTheCommunicationOfALayout) {
    const types::ParallelLayout layout = parallel(
        "  context_parallel_size: 2\n  cp_comm_type: [a2a, a2a, a2a, a2a]\n  moe_token_dispatcher_type: flex\n"
        "  moe_flex_dispatcher_backend: hybridep\n  overlap_p2p_comm: false\n");
    EXPECT_EQ(layout.cp_comm_type, types::ContextCommunication::a2a);
    EXPECT_EQ(layout.moe_token_dispatcher_type, types::TokenDispatcher::flex);
    EXPECT_EQ(layout.moe_flex_dispatcher_backend, types::FlexDispatcher::hybridep);
    EXPECT_FALSE(layout.overlap_p2p_comm);
    EXPECT_EQ(parallel("  cp_comm_type: allgather\n").cp_comm_type, types::ContextCommunication::all_gather);
    const types::ParallelLayout hierarchy = parallel(
        "  context_parallel_size: 4\n  cp_comm_type: a2a+p2p\n  hierarchical_context_parallel_sizes: [2, 2]\n");
    EXPECT_EQ(hierarchy.cp_comm_type, types::ContextCommunication::a2a_p2p);
    EXPECT_EQ(hierarchy.hierarchical_context_parallel_sizes, (std::vector<std::int64_t>{2, 2}));
}

TEST_F(LayoutLanguage, ReadsExpertOverlap) {
    const types::ParallelLayout layout = parallel(
        "  num_virtual_stages_per_pipeline_rank: 2\n  expert_model_parallel_size: 4\n"
        "  expert_tensor_parallel_size: 1\n  overlap_moe_expert_parallel_comm: true\n"
        "  delay_wgrad_compute: true\n");
    EXPECT_TRUE(layout.overlap_moe_expert_parallel_comm);
    EXPECT_TRUE(layout.delay_wgrad_compute);
    EXPECT_TRUE(
        parallel("  moe_shared_expert_overlap: true\n", "{from: model.yaml, moe_shared_expert_intermediate_size: 512}")
            .moe_shared_expert_overlap);
}

TEST_F(LayoutLanguage, TakesAnEndOfMicrobatchesThatFillsThePipeline) {
    // 8 microbatches in groups of 6 leave 2, as many as the pipeline has ranks.
    const types::ParallelLayout layout = parallel(
        "  num_virtual_stages_per_pipeline_rank: 2\n  data_parallel_size: 4\n"
        "  microbatch_group_size_per_virtual_pipeline_stage: 2\n");
    EXPECT_EQ(layout.microbatch_group_size(), 2);
    edit_file("scenario.yaml", "global_batch_size: 8", "global_batch_size: 32");
    edit_file("scenario.yaml", "virtual_pipeline_stage: 2", "virtual_pipeline_stage: 6");
    EXPECT_EQ(read_scenario("scenario.yaml").parallel.microbatch_group_size(), 6);
}

TEST_F(LayoutLanguage, ReadsThePrecisionAwareOptimizer) {
    const types::Optimizer optimizer =
        training(
            "optimizer: {use_distributed_optimizer: true, use_precision_aware_optimizer: true, "
            "main_grads_dtype: bf16, main_params_dtype: fp16, exp_avg_dtype: fp8, exp_avg_sq_dtype: bf16, "
            "optimizer_cpu_offload: true, optimizer_offload_fraction: 0.25, overlap_cpu_optimizer_d2h_h2d: true, "
            "num_distributed_optimizer_instances: 2, gradient_accumulation_fusion: false}\n")
            .optimizer;
    EXPECT_TRUE(optimizer.use_precision_aware_optimizer);
    EXPECT_EQ(optimizer.main_grads_dtype, DataType::bf16);
    EXPECT_EQ(optimizer.main_params_dtype, DataType::fp16);
    EXPECT_EQ(optimizer.exp_avg_dtype, DataType::fp8);
    EXPECT_EQ(optimizer.exp_avg_sq_dtype, DataType::bf16);
    EXPECT_TRUE(optimizer.optimizer_cpu_offload);
    EXPECT_EQ(optimizer.optimizer_offload_fraction, 0.25);
    EXPECT_TRUE(optimizer.overlap_cpu_optimizer_d2h_h2d);
    EXPECT_EQ(optimizer.num_distributed_optimizer_instances, 2);
    EXPECT_FALSE(optimizer.gradient_accumulation_fusion);
}

TEST_F(LayoutLanguage, SaysTheSumOfGradientsInEitherWord) {
    const auto in_bf16 = [](const std::string& keys) {
        return training("optimizer: {" + keys + "}\n").optimizer.grad_reduce_in_bf16;
    };
    EXPECT_FALSE(in_bf16("optimizer: adam"));
    EXPECT_TRUE(in_bf16("grad_reduce_in_bf16: true"));
    EXPECT_TRUE(in_bf16("accumulate_allreduce_grads_in_fp32: false"));
    EXPECT_FALSE(in_bf16("accumulate_allreduce_grads_in_fp32: true"));
    EXPECT_TRUE(in_bf16("grad_reduce_in_bf16: true, accumulate_allreduce_grads_in_fp32: false"));
}

TEST_F(LayoutLanguage, ReadsFp8WhereTheDeviceHasIt) {
    const std::string fp8 =
        "precision: fp8_blockwise\noptimizer: {fp8_param_gather: true, use_distributed_optimizer: true}\n";
    write_valid_files();
    edit_file("scenario.yaml", "node: machine.yaml",
              "node: {from: machine.yaml, device: {gemm_fp8_tflop_per_s: 1200}}");
    edit_file("scenario.yaml", "objective: step_time\n", fp8);
    const types::Scenario scenario = read_scenario("scenario.yaml");
    EXPECT_EQ(scenario.precision, types::Precision::fp8_blockwise);
    EXPECT_EQ(scenario.hardware.node.device.gemm_fp8.rate, 1200e12);
    EXPECT_TRUE(scenario.optimizer.fp8_param_gather);
}

}  // namespace
}  // namespace stowage::reader::testing
