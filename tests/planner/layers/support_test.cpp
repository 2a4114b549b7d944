#include "planner/layers/support.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/types/error.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

std::string refusal(const Scenario& scenario) {
    try {
        require_supported(scenario);
    } catch (const types::UnsupportedError& error) {
        return error.what();
    }
    return {};
}

TEST(Support, AcceptsTheShippedModels) {
    for (const Scenario& scenario : {llama3_70b(), qwen3_30b_a3b(), qwen3_235b_a22b(), small_gpt(), small_moe()})
        EXPECT_EQ(refusal(scenario), "");
}

TEST(Support, NamesAllMissingFeaturesAtOnce) {
    Scenario scenario = llama3_70b();
    scenario.parallel.context_parallel_size = 2;
    scenario.parallel.cp_comm_type = types::ContextCommunication::a2a_p2p;
    scenario.precision = types::Precision::nvfp4;
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::mlp, types::RecomputeModule::mhc};
    scenario.model.mtp_num_layers = 2;
    scenario.model.untie_embeddings_and_output_weights = true;
    EXPECT_EQ(refusal(scenario),
              "not supported by the layers of implementation megatron:\n"
              "  - cp_comm_type: a2a+p2p\n"
              "  - precision: nvfp4\n"
              "  - recomputation of mhc\n"
              "  - mtp_num_layers: 2");
}

TEST(Support, NamesEachFeatureThatIsMissing) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"mtp_num_layers: 2", [](Scenario& s) { s.model.mtp_num_layers = 2; }},
        {"multi-token prediction with tied embeddings over several pipeline stages",
         [](Scenario& s) {
             s.model.mtp_num_layers = 1;
             s.model.untie_embeddings_and_output_weights = false;
             s.parallel.pipeline_model_parallel_size = 2;
         }},
        {"multi-token prediction under full recomputation",
         [](Scenario& s) {
             s.model.mtp_num_layers = 1;
             s.recompute.recompute_granularity = types::RecomputeGranularity::full;
         }},
        {"full recomputation without a method",
         [](Scenario& s) { s.recompute.recompute_granularity = types::RecomputeGranularity::full; }},
        {"full recomputation without a number of layers",
         [](Scenario& s) { s.recompute.recompute_granularity = types::RecomputeGranularity::full; }},
        {"the layout has 2 stages, expected 1",
         [](Scenario& s) { s.parallel.pipeline_model_parallel_layout = "Et|tL"; }},
        {"the 8 layers do not divide over 5 pipeline stages",
         [](Scenario& s) { s.parallel.pipeline_model_parallel_size = 5; }},
        {"a stage without anything to run",
         [](Scenario& s) {
             s.parallel.pipeline_model_parallel_size = 3;
             s.parallel.decoder_first_pipeline_num_layers = s.model.num_layers;
         }},
        {"query groups that tensor parallelism does not divide",
         [](Scenario& s) { s.parallel.tensor_model_parallel_size = 3; }},
        // 2047 tokens are no multiple of 8; 2048 + 8 are, but no blocks of 32.
        {"precision: fp8_tensorwise with 2047 tokens of a microbatch on a rank",
         [](Scenario& s) {
             s.precision = types::Precision::fp8_tensorwise;
             s.batch.micro_batch_size = 1;
             s.batch.seq_length = 2047;
         }},
        {"precision: mxfp8 with 2056 tokens of a microbatch on a rank",
         [](Scenario& s) {
             s.precision = types::Precision::mxfp8;
             s.batch.micro_batch_size = 1;
             s.batch.seq_length = 2056;
         }},
        {"precision: fp8_blockwise with 1016 elements of a token",
         [](Scenario& s) {
             s.precision = types::Precision::fp8_blockwise;
             s.model.hidden_size = 1016;
         }},
        {"unfused attention with sliding windows",
         [](Scenario& s) {
             s.env = {{"NVTE_FUSED_ATTN", "0"}, {"NVTE_FLASH_ATTN", "0"}};
             s.model.window_size = 128;
         }},
        {"local layers with moe_grouped_gemm",
         [](Scenario& s) { s.model.transformer_impl = types::TransformerImpl::local; }},
        {"masked_softmax_fusion: false with Transformer Engine's layers",
         [](Scenario& s) { s.model.masked_softmax_fusion = false; }},
        {"defer_embedding_wgrad_compute beside CUDA graphs",
         [](Scenario& s) {
             s.parallel.defer_embedding_wgrad_compute = true;
             s.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
         }},
        {"a step of 2000008 layers over all microbatches",
         [](Scenario& s) {
             s.model.num_layers = 8;
             s.batch.micro_batch_size = 1;
             s.batch.global_batch_size = 250'001;
         }},
        {"experts without a fixed capacity inside a graph (the host waits for the counts of tokens)",
         [](Scenario& s) {
             s = small_moe();
             s.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
         }},
        {"moe_preprocess with a capacity factor and without padding (the host waits for the counts of tokens)",
         [](Scenario& s) {
             s = small_moe();
             s.model.moe_expert_capacity_factor = 1.0;
             s.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
             s.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn, types::CudaGraphModule::moe_router,
                                                types::CudaGraphModule::moe_preprocess};
         }},
        {"full recomputation beside graphs of layers",
         [](Scenario& s) {
             s.recompute = {types::RecomputeGranularity::full, types::RecomputeMethod::uniform, 1, {}};
             s.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::local;
         }},
        {"biases beside a shared expert",
         [](Scenario& s) {
             s.model.moe_shared_expert_intermediate_size = 64;
             s.model.add_bias_linear = true;
         }},
        {"a gate of a shared expert that is not there", [](Scenario& s) { s.model.moe_shared_expert_gate = true; }},
        {"the overlap of a shared expert that is not there",
         [](Scenario& s) { s.parallel.moe_shared_expert_overlap = true; }},
        {"moe_shared_expert_overlap with another dispatcher than alltoall",
         [](Scenario& s) {
             s.model.moe_shared_expert_intermediate_size = 64;
             s.parallel.moe_shared_expert_overlap = true;
             s.parallel.moe_token_dispatcher_type = types::TokenDispatcher::allgather;
         }},
        {"moe_shared_expert_overlap with latent experts",
         [](Scenario& s) {
             s.model.moe_shared_expert_intermediate_size = 64;
             s.parallel.moe_shared_expert_overlap = true;
             s.model.moe_latent_size = 256;
         }},
        {"shared_experts recomputed while overlapped",
         [](Scenario& s) {
             s.model.moe_shared_expert_intermediate_size = 64;
             s.parallel.moe_shared_expert_overlap = true;
             s.recompute.recompute_granularity = types::RecomputeGranularity::selective;
             s.recompute.recompute_modules = {types::RecomputeModule::shared_experts};
         }},
        {"moe_token_dispatcher_type: flex with one expert rank",
         [](Scenario& s) { s.parallel.moe_token_dispatcher_type = types::TokenDispatcher::flex; }},
        {"padding to a capacity without a capacity factor",
         [](Scenario& s) { s.model.moe_pad_expert_input_to_capacity = true; }},
        {"a capacity factor with another dispatcher than alltoall",
         [](Scenario& s) {
             s.model.moe_expert_capacity_factor = 1.0;
             s.parallel.moe_token_dispatcher_type = types::TokenDispatcher::allgather;
         }},
        {"routing: recorded", [](Scenario& s) { s.batch.routing = types::Routing::recorded; }},
        {"without sequence parallelism", [](Scenario& s) { s.parallel.tensor_model_parallel_size = 2; }},
        {"experts that expert parallelism does not divide",
         [](Scenario& s) { s.parallel.expert_model_parallel_size = 3; }},
        {"ranks of a pipeline stage do not divide", [](Scenario& s) { s.parallel.expert_model_parallel_size = 4; }},
        {"optimizer: muon", [](Scenario& s) { s.optimizer.optimizer = types::OptimizerKind::muon; }},
        {"optimizer: sgd with use_distributed_optimizer",
         [](Scenario& s) {
             s.optimizer.optimizer = types::OptimizerKind::sgd;
             s.optimizer.use_distributed_optimizer = true;
         }},
        {"replicas that the distributed-optimizer instances do not divide",
         [](Scenario& s) {
             s.optimizer.use_distributed_optimizer = true;
             s.optimizer.num_distributed_optimizer_instances = 3;
         }},
        {"use_precision_aware_optimizer without use_distributed_optimizer",
         [](Scenario& s) { s.optimizer.use_precision_aware_optimizer = true; }},
        {"exp_avg_dtype: bf16 without use_precision_aware_optimizer",
         [](Scenario& s) { s.optimizer.exp_avg_dtype = types::DataType::bf16; }},
        {"main_params_dtype: bf16",
         [](Scenario& s) {
             s.optimizer.use_precision_aware_optimizer = true;
             s.optimizer.main_params_dtype = types::DataType::bf16;
         }},
        {"fp8_param_gather with precision: bf16", [](Scenario& s) { s.optimizer.fp8_param_gather = true; }},
        {"optimizer_cpu_offload without use_precision_aware_optimizer",
         [](Scenario& s) { s.optimizer.optimizer_cpu_offload = true; }},
        {"a machine whose host memory rate is not known",
         [](Scenario& s) { s.optimizer.optimizer_cpu_offload = true; }},
        {"grad_reduce_in_bf16 with precision: fp16",
         [](Scenario& s) {
             s.precision = types::Precision::fp16;
             s.optimizer.grad_reduce_in_bf16 = true;
         }},
    };
    for (const auto& [feature, change] : cases) {
        Scenario scenario = small_moe();
        change(scenario);
        EXPECT_NE(refusal(scenario).find(feature), std::string::npos) << feature << "\n" << refusal(scenario);
    }
}

}  // namespace
}  // namespace stowage::layers::testing
