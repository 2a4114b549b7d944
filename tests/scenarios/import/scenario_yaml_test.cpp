#include "scenarios/reader/scenario_yaml.hpp"

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/import/arguments.hpp"
#include "tests/scenarios/import/round_trip.hpp"

namespace stowage::reader::testing {
namespace {

TEST(ScenarioYaml, IsReadableAndSaysWhatDiffersFromTheDefault) {
    types::Scenario scenario = import_small(
        "bf16: true\nswiglu: true\nnum-experts: 4\nmoe-layer-freq: '[0]*2+[1]*10'\n"
        "env: {NVTE_CPU_OFFLOAD_V1: 1, CUBLAS_WORKSPACE_CONFIG: ':4096:8'}\n");
    EXPECT_EQ(scenario_yaml(scenario, ScenarioFile{"hardware/h100-8gpu.yaml", false, {"From args.yaml."}}),
              "# From args.yaml.\n"
              "schema: stowage/scenario/1\n"
              "model:\n"
              "  name: args\n"
              "  num_layers: 12\n"
              "  hidden_size: 512\n"
              "  ffn_hidden_size: 1344\n"
              "  num_attention_heads: 8\n"
              "  num_query_groups: 8\n"
              "  kv_channels: 64\n"
              "  vocab_size: 50257\n"
              "  max_position_embeddings: 1024\n"
              "  normalization: LayerNorm\n"
              "  swiglu: true\n"
              "  position_embedding_type: learned_absolute\n"
              "  untie_embeddings_and_output_weights: false\n"
              "  add_bias_linear: true\n"
              "  add_qkv_bias: true\n"
              "  qk_layernorm: false\n"
              "  attention_dropout: 0.1\n"
              "  hidden_dropout: 0.1\n"
              "  num_experts: 4\n"
              "  moe_router_topk: 2\n"
              "  moe_ffn_hidden_size: 1344\n"
              "  moe_grouped_gemm: false\n"
              "  moe_layer_freq: \"([0]*2+[1]*10)\"\n"
              "implementation: megatron\n"
              "rules: main-2026-08\n"
              "env:\n"
              "  CUBLAS_WORKSPACE_CONFIG: \":4096:8\"\n"
              "  NVTE_CPU_OFFLOAD_V1: \"1\"\n"
              "parallel:\n"
              "  tensor_model_parallel_size: 1\n"
              "  pipeline_model_parallel_size: 1\n"
              "  context_parallel_size: 1\n"
              "  expert_model_parallel_size: 1\n"
              "  expert_tensor_parallel_size: 1\n"
              "  data_parallel_size: 8\n"
              "  moe_token_dispatcher_type: allgather\n"
              "batch:\n"
              "  micro_batch_size: 1\n"
              "  global_batch_size: 8\n"
              "  seq_length: 1024\n"
              "precision: bf16\n"
              "optimizer:\n"
              "  optimizer: adam\n"
              "  use_distributed_optimizer: false\n"
              "offload:\n"
              "  offload_modules: []\n"
              "  activation_offload_fraction: 1\n"
              "hardware:\n"
              "  node: hardware/h100-8gpu.yaml\n"
              "  nodes: 1\n"
              "objective: step_time\n");
}

void change_model(types::Model& model) {
    model.activation = types::Activation::quick_geglu;
    model.qk_layernorm = true;
    model.qk_norm_span = types::QkNormSpan::width;
    model.attention_output_gate = true;
    model.softmax_type = types::SoftmaxType::off_by_one;
    model.window_size = 127;
    model.window_layers = {true, false, true, false, true, false, true, false, true, false, true, false};
    model.make_vocab_size_divisible_by = 64;
    model.num_experts = 8;
    model.moe_router_topk = 3;
    model.moe_ffn_hidden_size = 96;
    model.moe_shared_expert_intermediate_size = 192;
    model.moe_shared_expert_gate = true;
    model.moe_latent_size = 256;
    model.moe_router_score_function = types::RouterScore::sigmoid;
    model.moe_router_enable_expert_bias = true;
    model.moe_expert_capacity_factor = 1.25;
    model.moe_pad_expert_input_to_capacity = true;
}

void change_policies(types::Scenario& scenario) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::moe_act, types::RecomputeModule::layernorm};
    scenario.cuda_graph = {types::CudaGraphImpl::transformer_engine, {types::CudaGraphModule::attn}, 1};
    scenario.offload.offload_modules.reset();
    scenario.offload.activation_offload_fraction.reset();
    scenario.offload.min_offloaded_tensor_size = 4;
    scenario.offload.delta_offload_bytes_across_pp_ranks = 5;
    scenario.offload.fine_grained_offloading_max_inflight_offloads = 6;
    scenario.offload.delay_offload_until_cuda_graph.reset();
    scenario.limits.device_memory = types::Bytes{std::int64_t{76} << 30};
    scenario.limits.host_memory_per_node = types::Bytes{1'500'000'000'000};
    scenario.objective = types::Objective::memory;
    scenario.env["WITH \"quotes\""] = "back\\slash\tand tab";
}

TEST(ScenarioYaml, ReadsBackWithEveryValueChanged) {
    types::Scenario scenario = import_small("bf16: true\n");
    change_model(scenario.model);
    change_policies(scenario);
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 1.5;
    scenario.precision = types::Precision::fp8_delayed;
    scenario.rules = types::RuleSet::core_0_18;
    scenario.parallel.cp_comm_type = types::ContextCommunication::a2a;
    scenario.parallel.moe_shared_expert_overlap = true;
    scenario.parallel.overlap_p2p_comm = false;
    scenario.optimizer = {types::OptimizerKind::adam,
                          true,
                          true,
                          true,
                          2,
                          true,
                          types::DataType::bf16,
                          types::DataType::fp16,
                          types::DataType::bf16,
                          types::DataType::fp8,
                          true,
                          false,
                          true,
                          true,
                          0.25,
                          true};
    expect_reads_back(scenario, false);
}

TEST(ScenarioYaml, ReadsBackWhatExcludesTheOtherValues) {
    types::Scenario scenario = import_small("bf16: true\nglobal-batch-size: 64\n");
    scenario.model.num_experts = 8;
    scenario.model.moe_router_topk = 1;
    scenario.model.moe_ffn_hidden_size = 96;
    scenario.model.add_bias_linear = false;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.parallel.moe_token_dispatcher_type = types::TokenDispatcher::flex;
    scenario.parallel.moe_flex_dispatcher_backend = types::FlexDispatcher::hybridep;
    scenario.parallel.overlap_moe_expert_parallel_comm = true;
    scenario.parallel.delay_wgrad_compute = true;
    scenario.optimizer.optimizer = types::OptimizerKind::sgd;
    scenario.model.activation = types::Activation::squared_relu;
    scenario.model.softmax_type = types::SoftmaxType::learnable;
    expect_reads_back(scenario, false);
}

TEST(ScenarioYaml, ReadsBackLayoutsAndOtherMixers) {
    for (const char* more :
         {"pipeline-model-parallel-size: 2\npipeline-model-parallel-layout: 'Ettt|(ttt|)*2tttL'\n",
          "pipeline-model-parallel-size: 4\nnum-layers-per-virtual-pipeline-stage: 1\n"
          "microbatch-group-size-per-virtual-pipeline-stage: 4\nno-overlap-p2p-communication: true\n",
          "pipeline-model-parallel-size: 4\ndecoder-first-pipeline-num-layers: 2\n"
          "decoder-last-pipeline-num-layers: 2\n",
          "experimental-attention-variant: gated_delta_net\nlinear-attention-freq: 4\nlinear-num-key-heads: 8\n",
          "experimental-attention-variant: gated_delta_net\nlinear-attention-freq: '([1]*11+[0]*1)'\n",
          "position-embedding-type: none\nhybrid-layer-pattern: M-M*MEM-M*ME\nnum-experts: 4\nmamba-head-dim: 32\n",
          "position-embedding-type: none\nhybrid-layer-pattern: M-M*MEM-M*ME/*E/*E\nnum-experts: 4\n",
          "multi-latent-attention: true\nposition-embedding-type: rope\nrope-type: rope\nmtp-num-layers: 1\n",
          "context-parallel-size: 4\ncp-comm-type: a2a+p2p\nhierarchical-context-parallel-sizes: '2 2'\n",
          "num-experts: 4\nmoe-layer-freq: 3\nexpert-tensor-parallel-size: 2\nexpert-model-parallel-size: 2\n"}) {
        SCOPED_TRACE(more);
        expect_reads_back(import_small(std::string("global-batch-size: 64\n") + more), false);
    }
    expect_reads_back(import_small("", 4), true);
}

TEST(ScenarioYaml, QuotesWhatYamlWouldReadOtherwise) {
    EXPECT_EQ(yaml_text("hardware/h100-8gpu.yaml"), "hardware/h100-8gpu.yaml");
    EXPECT_EQ(yaml_text("../a/b.yaml"), "../a/b.yaml");
    for (const char* word : {"true", "No", "null", "1", "a: b", "", "#x", "- a", "M-M*"})
        EXPECT_EQ(yaml_text(word), "\"" + std::string(word) + "\"");
    EXPECT_EQ(yaml_text("a\n\"\\"), "\"a\\x0a\\\"\\\\\"");
}

TEST(ScenarioYaml, WritesRunsOfLayers) {
    EXPECT_EQ(list_expression({false, false, true, true, true}), "([0]*2+[1]*3)");
    EXPECT_EQ(list_expression({true}), "([1]*1)");
}

}  // namespace
}  // namespace stowage::reader::testing
