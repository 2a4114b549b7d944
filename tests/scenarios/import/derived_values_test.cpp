#include <gtest/gtest.h>

#include "tests/scenarios/import/arguments.hpp"

namespace stowage::reader::testing {
namespace {

using types::Model;
using types::ParallelLayout;

TEST(MegatronDefaults, AreThoseOfItsCommandLine) {
    const types::Scenario scenario = import_small("");
    const Model& model = scenario.model;
    EXPECT_EQ(model.activation, types::Activation::gelu);
    EXPECT_EQ(model.ffn_hidden_size, 4 * 512);
    EXPECT_EQ(model.kv_channels, 512 / 8);
    EXPECT_EQ(model.num_query_groups, 8);
    EXPECT_EQ(model.normalization, types::Normalization::LayerNorm);
    EXPECT_EQ(model.position_embedding_type, types::PositionEmbedding::learned_absolute);
    EXPECT_EQ(model.max_position_embeddings, 1024);
    EXPECT_TRUE(model.add_bias_linear);
    EXPECT_TRUE(model.add_qkv_bias);
    EXPECT_FALSE(model.untie_embeddings_and_output_weights);
    EXPECT_FALSE(model.qk_layernorm);
    EXPECT_EQ(model.attention_dropout, 0.1);
    EXPECT_EQ(model.hidden_dropout, 0.1);
    EXPECT_EQ(model.vocab_size, 50257);  // the GPT-2 tokenizer
    EXPECT_EQ(model.make_vocab_size_divisible_by, 128);
    EXPECT_EQ(scenario.batch.micro_batch_size, 1);
    EXPECT_EQ(scenario.batch.global_batch_size, 8);  // micro batch x 8 replicas
    EXPECT_EQ(scenario.parallel.data_parallel_size, 8);
    EXPECT_EQ(scenario.parallel.num_virtual_stages_per_pipeline_rank, 1);
    EXPECT_EQ(scenario.precision, types::Precision::fp32);
    EXPECT_EQ(scenario.optimizer.optimizer, types::OptimizerKind::adam);
    EXPECT_FALSE(scenario.optimizer.use_distributed_optimizer);
    EXPECT_TRUE(scenario.optimizer.gradient_accumulation_fusion);
    EXPECT_EQ(scenario.recompute.recompute_granularity, types::RecomputeGranularity::none);
    EXPECT_EQ(scenario.cuda_graph.cuda_graph_impl, types::CudaGraphImpl::none);
    EXPECT_EQ(scenario.cuda_graph.cuda_graph_warmup_steps, 3);
    EXPECT_EQ(scenario.offload.offload_modules, types::ModuleSet{});
    EXPECT_EQ(scenario.offload.min_offloaded_tensor_size, 1048576);
    EXPECT_EQ(scenario.model.name, "args");
}

TEST(MegatronWidths, TakeTwoThirdsInStepsOf64UnderSwiglu) {
    // 4 x 512 x 2/3 = 1365.33; / 64 = 21.33; 21 x 64 = 1344
    EXPECT_EQ(import_small("swiglu: true\n").model.ffn_hidden_size, 1344);
    EXPECT_EQ(import_small("swiglu: true\nffn-hidden-size: 4096\n").model.ffn_hidden_size, 4096);
    // The reduction is for swiglu alone, not for another gated activation.
    EXPECT_EQ(import_small("quick-geglu: true\n").model.ffn_hidden_size, 2048);
    EXPECT_EQ(import_small("squared-relu: true\n").model.activation, types::Activation::squared_relu);
}

TEST(MegatronQueryGroups, CountOnlyBesideTheirFlag) {
    EXPECT_EQ(import_small("group-query-attention: true\nnum-query-groups: 4\n").model.num_query_groups, 4);
    EXPECT_EQ(import_small("group-query-attention: true\n").model.num_query_groups, 1);  // its default
    EXPECT_EQ(import_small("num-query-groups: 4\n").model.num_query_groups, 8);
    EXPECT_NE(notes_of("num-query-groups: 4\n").find("no effect without group-query-attention"), std::string::npos);
}

TEST(MegatronVocabulary, ComesFromItsSizeOrTheTokenizer) {
    EXPECT_EQ(import_small("vocab-size: 32000\ntokenizer-type: HuggingFaceTokenizer\n").model.vocab_size, 32000);
    // The null tokenizer adds its end-of-document token.
    EXPECT_EQ(import_small("vocab-size: 131072\ntokenizer-type: NullTokenizer\n").model.vocab_size, 131073);
    const Model padded = import_small("padded-vocab-size: 51200\n").model;
    EXPECT_EQ(padded.vocab_size, 51200);
    EXPECT_EQ(padded.make_vocab_size_divisible_by, 1);
    EXPECT_EQ(error_of("tokenizer-type: SentencePieceTokenizer\n"),
              "args.yaml:6:17: error: tokenizer-type: the size of this tokenizer's vocabulary is not known\n"
              "  tokenizer-type: SentencePieceTokenizer\n"
              "                  ^\n"
              "hint: give vocab-size");
}

TEST(MegatronBiases, OfAllLinearsAreAlsoThoseOfQueryKeyAndValue) {
    EXPECT_FALSE(import_small("disable-bias-linear: true\n").model.add_qkv_bias);
    const Model only = import_small("disable-bias-linear: true\nadd-qkv-bias: true\n").model;
    EXPECT_TRUE(only.add_qkv_bias);
    EXPECT_FALSE(only.add_bias_linear);
}

TEST(MegatronExperts, HaveDefaultsOfTheirOwn) {
    const types::Scenario scenario =
        import_small("num-experts: 8\ntensor-model-parallel-size: 2\nsequence-parallel:\n");
    EXPECT_EQ(scenario.model.moe_router_topk, 2);
    EXPECT_EQ(scenario.model.moe_ffn_hidden_size, 2048);          // the dense width
    EXPECT_EQ(scenario.parallel.expert_tensor_parallel_size, 2);  // tensor parallelism
    EXPECT_EQ(scenario.parallel.moe_token_dispatcher_type, types::TokenDispatcher::allgather);
    EXPECT_FALSE(import_small("num-experts: 0\n").model.has_experts());
    EXPECT_FALSE(import_small("num-experts: null\n").model.has_experts());
}

TEST(MegatronExpertLayers, AreANumberAListOrAnExpression) {
    const std::string experts = "num-experts: 4\nmoe-layer-freq: ";
    // Every third layer from layer 0 has experts.
    const std::vector<bool> third{true, false, false, true, false, false, true, false, false, true, false, false};
    EXPECT_EQ(import_small(experts + "3\n").model.moe_layer_freq, third);
    EXPECT_EQ(import_small(experts + "'([1]*1+[0]*2)*4'\n").model.moe_layer_freq, third);
    EXPECT_EQ(import_small(experts + "[1,0,0,1,0,0,1,0,0,1,0,0]\n").model.moe_layer_freq, third);
    EXPECT_TRUE(import_small(experts + "1\n").model.moe_layer_freq.empty());
    std::vector<bool> first_dense(12, true);
    first_dense[0] = false;
    EXPECT_EQ(import_small(experts + "'([0]+[1]*11)'\n").model.moe_layer_freq, first_dense);
    EXPECT_NE(error_of(experts + "'([0]*3+[1]*5)'\n").find("args.yaml:7:"), std::string::npos);  // 8 of 12 layers
    EXPECT_NE(error_of(experts + "'[0]*3+'\n").find("args.yaml:7:17: error: moe-layer-freq: found '[0]*3+'"),
              std::string::npos);
}

TEST(MegatronLatentAttention, HasTheDefaultsOfTheCommandLine) {
    const Model model = import_small("multi-latent-attention: true\nposition-embedding-type: rope\n").model;
    EXPECT_TRUE(model.multi_latent_attention);
    EXPECT_EQ(model.q_lora_rank, 0);  // not compressed
    EXPECT_EQ(model.kv_lora_rank, 32);
    EXPECT_EQ(model.qk_head_dim, 128);
    EXPECT_EQ(model.qk_pos_emb_head_dim, 64);
    EXPECT_EQ(model.v_head_dim, 128);
    EXPECT_EQ(model.rope_type, types::RopeType::yarn);
    const Model given = import_small(
                            "multi-latent-attention: true\nposition-embedding-type: rope\nq-lora-rank: 1536\n"
                            "kv-lora-rank: 512\nqk-head-dim: 192\nv-head-dim: 256\nrope-type: rope\n")
                            .model;
    EXPECT_EQ(given.q_lora_rank, 1536);
    EXPECT_EQ(given.kv_lora_rank, 512);
    EXPECT_EQ(given.qk_head_dim, 192);
    EXPECT_EQ(given.v_head_dim, 256);
    EXPECT_EQ(given.rope_type, types::RopeType::rope);
}

TEST(MegatronSequenceParallelism, IsOffWithOneTensorRank) {
    EXPECT_TRUE(import_small("tensor-model-parallel-size: 2\nsequence-parallel: true\n").parallel.sequence_parallel);
    const ImportedScenario imported = import_text(kSmallJob + "sequence-parallel: true\n");
    EXPECT_FALSE(imported.scenario.parallel.sequence_parallel);
    ASSERT_EQ(imported.findings.size(), 1U);
    EXPECT_FALSE(imported.findings[0].illegal);
}

TEST(MegatronVirtualStages, AreGivenInThreeWays) {
    const std::string pipeline = "pipeline-model-parallel-size: 2\nglobal-batch-size: 64\n";
    // 12 layers over 2 ranks are 6 a rank, 2 a virtual stage: 3.
    EXPECT_EQ(import_small(pipeline + "num-layers-per-virtual-pipeline-stage: 2\n")
                  .parallel.num_virtual_stages_per_pipeline_rank,
              3);
    EXPECT_EQ(import_small(pipeline + "num-virtual-stages-per-pipeline-rank: 3\n")
                  .parallel.num_virtual_stages_per_pipeline_rank,
              3);
    const ParallelLayout by_letters =
        import_small(pipeline + "pipeline-model-parallel-layout: 'Ettt|(ttt|)*2tttL'\n").parallel;
    EXPECT_EQ(by_letters.num_virtual_stages_per_pipeline_rank, 2);
    EXPECT_EQ(by_letters.pipeline_model_parallel_layout, "Ettt|(ttt|)*2tttL");
    EXPECT_NE(error_of(pipeline + "num-virtual-stages-per-pipeline-rank: 3\nnum-layers-per-virtual-pipeline-stage: 2\n")
                  .find("more than one description of virtual stages"),
              std::string::npos);
    EXPECT_NE(error_of(pipeline + "num-layers-per-virtual-pipeline-stage: 5\n"), "");
}

TEST(MegatronVirtualStages, CountEmbeddingAndLossWhereAsked) {
    // 10 + embedding + loss = 12 over 2 ranks, 3 a virtual stage: 2.
    const std::string text =
        "num-layers: 10\nhidden-size: 512\nnum-attention-heads: 8\nseq-length: 1024\nmax-position-embeddings: 1024\n"
        "pipeline-model-parallel-size: 2\nnum-layers-per-virtual-pipeline-stage: 3\n"
        "account-for-embedding-in-pipeline-split: true\naccount-for-loss-in-pipeline-split: true\n"
        "global-batch-size: 64\n";
    EXPECT_EQ(import_text(text).scenario.parallel.num_virtual_stages_per_pipeline_rank, 2);
}

TEST(MegatronWorld, DividesIntoReplicas) {
    const std::string layout = "tensor-model-parallel-size: 2\npipeline-model-parallel-size: 4\nmicro-batch-size: 4\n";
    const types::Scenario scenario = import_small(layout, 32);
    EXPECT_EQ(scenario.parallel.data_parallel_size, 4);
    EXPECT_EQ(scenario.batch.global_batch_size, 16);
    EXPECT_EQ(scenario.hardware.nodes, 4);
    EXPECT_NE(error_of(layout, 4), "");  // fewer than one replica
    EXPECT_NE(error_of(layout, 12).find("12 GPUs are not whole machines of 8"), std::string::npos);
    const ImportedScenario half = import_text(kSmallJob, 4);
    EXPECT_TRUE(half.part_of_a_node);
    EXPECT_EQ(half.scenario.hardware.gpus(), 4);
    EXPECT_EQ(import_small("global-batch-size: 64\n").batch.global_batch_size, 64);
    EXPECT_NE(error_of("global-batch-size: 12\n").find("global-batch-size"), std::string::npos);  // not a multiple of 8
}

TEST(MegatronWorld, IsTheSmallestThatTheLayoutFillsIfNobodySays) {
    const support::TemporaryFolder folder;
    support::write_text(folder / "args.yaml", kSmallJob + "pipeline-model-parallel-size: 6\n");
    ImportedScenario imported = import_megatron(folder / "args.yaml", ImportedHardware{shipped_h100(), {}, {}});
    EXPECT_EQ(imported.scenario.hardware.gpus(), 24);  // whole machines of 8 that 6 ranks divide
    ASSERT_EQ(imported.notes.size(), 1U);
    EXPECT_NE(imported.notes[0].find("3 machines of 8"), std::string::npos);
    support::write_text(folder / "args.yaml", kSmallJob + "nnodes: 2\nnproc-per-node: 8\n");
    imported = import_megatron(folder / "args.yaml", ImportedHardware{shipped_h100(), {}, {}});
    EXPECT_EQ(imported.scenario.hardware.gpus(), 16);
    EXPECT_TRUE(imported.notes.empty());
}

TEST(MegatronWindows, SkipEveryNthLayer) {
    const Model model = import_small("window-size: (128,0)\nwindow-attn-skip-freq: 4\n").model;
    EXPECT_EQ(model.window_size, 128);
    ASSERT_EQ(model.window_layers.size(), 12U);
    EXPECT_TRUE(model.is_windowed_layer(0));
    EXPECT_TRUE(model.is_windowed_layer(2));
    EXPECT_FALSE(model.is_windowed_layer(3));  // counted from 1: the fourth
    EXPECT_NE(error_of("window-size: wide\n").find("expected a pair such as (128,0)"), std::string::npos);
}

TEST(MegatronHybrids, SayTheirLayersByLetters) {
    const std::string text =
        "hidden-size: 512\nnum-attention-heads: 8\nseq-length: 1024\nmax-position-embeddings: 1024\n"
        "position-embedding-type: none\nhybrid-layer-pattern: M-M*ME\nnum-experts: 4\n";
    const Model model = import_text(text).scenario.model;
    EXPECT_EQ(model.num_layers, 6);
    EXPECT_EQ(model.mixer_of(0), types::Mixer::mamba);
    EXPECT_EQ(model.mixer_of(3), types::Mixer::attention);
    EXPECT_EQ(model.feed_forward_of(1), types::FeedForward::dense);
    EXPECT_EQ(model.feed_forward_of(5), types::FeedForward::moe);
    EXPECT_EQ(model.mamba_num_heads, 2 * 512 / 64);  // twice the width in heads of 64
    EXPECT_NE(error_of("hybrid-layer-pattern: M-M*\n").find("found 4 layers, expected num-layers 12"),
              std::string::npos);
    EXPECT_NE(error_of("is-hybrid-model: true\n").find("give hybrid-layer-pattern"), std::string::npos);
}

TEST(MegatronLinearAttention, KeepsEveryNthLayer) {
    const Model model =
        import_small("experimental-attention-variant: gated_delta_net\nlinear-attention-freq: 4\n").model;
    EXPECT_EQ(model.mixer_of(0), types::Mixer::gated_delta_net);
    EXPECT_EQ(model.mixer_of(3), types::Mixer::attention);
    EXPECT_NE(error_of("experimental-attention-variant: dsa\n").find("attention of type dsa cannot be planned"),
              std::string::npos);
}

TEST(MegatronPrecision, IsOfTheParametersAndTheRecipe) {
    using types::Precision;
    EXPECT_EQ(import_small("bf16: true\n").precision, Precision::bf16);
    EXPECT_EQ(import_small("fp16: true\n").precision, Precision::fp16);
    EXPECT_EQ(import_small("bf16: true\nfp8-format: hybrid\n").precision, Precision::fp8_delayed);  // its default
    EXPECT_EQ(import_small("bf16: true\nfp8-format: e4m3\nfp8-recipe: tensorwise\n").precision,
              Precision::fp8_tensorwise);
    EXPECT_EQ(import_small("bf16: true\nfp8-format: e4m3\nfp8-recipe: blockwise\n").precision,
              Precision::fp8_blockwise);
    // These two need another GPU than the H100.
    EXPECT_NE(error_of("bf16: true\nfp8-format: e4m3\nfp8-recipe: mxfp8\n").find("mxfp8 needs compute_capability 100"),
              std::string::npos);
    EXPECT_NE(error_of("bf16: true\nfp4-format: e2m1\n").find("nvfp4 needs compute_capability 100"), std::string::npos);
    EXPECT_EQ(import_small("bf16: true\nfp8-recipe: mxfp8\n").precision, Precision::bf16);  // no format, no FP8
    EXPECT_NE(error_of("bf16: true\nfp8-format: hybrid\nfp8-recipe: custom\n").find("FP8 recipe custom"),
              std::string::npos);
    EXPECT_NE(error_of("bf16: true\nfp16: true\n").find("beside bf16"), std::string::npos);
}

TEST(MegatronOptimizer, HasItsStateTypesAndItsHostShare) {
    const types::Optimizer optimizer =
        import_small(
            "bf16: true\nuse-distributed-optimizer: true\noverlap-grad-reduce: true\noverlap-param-gather: true\n"
            "num-distributed-optimizer-instances: 2\nuse-precision-aware-optimizer: true\nexp-avg-dtype: bf16\n"
            "exp-avg-sq-dtype: bf16\nmain-grads-dtype: bf16\ngrad-reduce-in-bf16: true\n"
            "no-gradient-accumulation-fusion: true\noptimizer-cpu-offload: true\noptimizer-offload-fraction: 0.5\n")
            .optimizer;
    EXPECT_TRUE(optimizer.use_distributed_optimizer);
    EXPECT_TRUE(optimizer.overlap_grad_reduce);
    EXPECT_TRUE(optimizer.overlap_param_gather);
    EXPECT_EQ(optimizer.num_distributed_optimizer_instances, 2);
    EXPECT_EQ(optimizer.exp_avg_dtype, types::DataType::bf16);
    EXPECT_EQ(optimizer.exp_avg_sq_dtype, types::DataType::bf16);
    EXPECT_EQ(optimizer.main_grads_dtype, types::DataType::bf16);
    EXPECT_EQ(optimizer.main_params_dtype, types::DataType::fp32);
    EXPECT_TRUE(optimizer.grad_reduce_in_bf16);
    EXPECT_FALSE(optimizer.gradient_accumulation_fusion);
    EXPECT_TRUE(optimizer.optimizer_cpu_offload);
    EXPECT_EQ(optimizer.optimizer_offload_fraction, 0.5);
    EXPECT_NE(error_of("exp-avg-dtype: bf16\n").find("without use-precision-aware-optimizer"), std::string::npos);
}

TEST(MegatronRecomputation, IsOfCoreAttentionUnlessModulesAreNamed) {
    using types::RecomputeModule;
    const std::vector<RecomputeModule> core{RecomputeModule::core_attn};
    const types::Recompute selective = import_small("recompute-granularity: selective\n").recompute;
    EXPECT_EQ(selective.recompute_modules, core);
    EXPECT_EQ(import_small("recompute-activations: true\n").recompute, selective);
    const types::Recompute full =
        import_small("recompute-granularity: full\nrecompute-method: uniform\nrecompute-num-layers: 1\n").recompute;
    EXPECT_EQ(full.recompute_granularity, types::RecomputeGranularity::full);
    EXPECT_EQ(full.recompute_method, types::RecomputeMethod::uniform);
    EXPECT_EQ(full.recompute_num_layers, 1);
    EXPECT_TRUE(full.recompute_modules.empty());
    const types::Recompute experts = import_small("num-experts: 4\nmoe-layer-recompute: true\n").recompute;
    EXPECT_EQ(experts.recompute_modules, std::vector<RecomputeModule>{RecomputeModule::moe});
}

TEST(MegatronAttentionBackend, IsToldToTransformerEngineByVariables) {
    const auto env = import_small("attention-backend: flash\n").env;
    EXPECT_EQ(env.at("NVTE_FLASH_ATTN"), "1");
    EXPECT_EQ(env.at("NVTE_FUSED_ATTN"), "0");
    EXPECT_EQ(env.at("NVTE_UNFUSED_ATTN"), "0");
    EXPECT_EQ(import_small("attention-backend: AttnBackend.fused\n").env.at("NVTE_FUSED_ATTN"), "1");
    EXPECT_TRUE(import_small("attention-backend: auto\n").env.empty());
}

}  // namespace
}  // namespace stowage::reader::testing
