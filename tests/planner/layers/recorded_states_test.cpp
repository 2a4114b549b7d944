#include <gtest/gtest.h>

#include <string>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

// Bytes between steps that Megatron-LM's own functional tests recorded (August 2026) on the last pipeline rank, for
// layouts with several virtual stages.

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Bytes named(const StageLayers& stage, const std::string& part) {
    Bytes total;
    for (const StateBuffer& state : stage.states)
        if (state.name.find(part) != std::string::npos) total += state.bytes;
    return total;
}

std::int64_t elements(const StageLayers& stage, ParameterKind kind) {
    std::int64_t total = 0;
    for (const Parameter& parameter : stage_parameters(stage))
        if (parameter.kind == kind) total += parameter.elements();
    return total;
}

double error(Bytes predicted, std::int64_t recorded) {
    return static_cast<double>(predicted.count) / static_cast<double>(recorded) - 1;
}

// gpt3_mcore_te_tp1_pp4_vp1_1node on GB200: three virtual stages of one layer on each of four ranks, gradients not
// fused. Last rank: 3 * 3,152,384 + 1,024 + 25,755,648 = 35,213,824 parameters of 18 bytes, 633,848,832; cuBLAS
// 67,108,864, Transformer Engine 33,555,456; three virtual stages with two hidden tensors of 4,194,304 each; scalars
// 3,584. To the byte.
TEST(RecordedStates, ThreeVirtualStagesOnTheLastOfFourRanks) {
    Scenario scenario = small_gpt();
    scenario.parallel.pipeline_model_parallel_size = 4;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = 3;
    scenario.batch.global_batch_size = 32;
    scenario.optimizer.gradient_accumulation_fusion = false;
    scenario.hardware.node.device.compute_capability = 100;
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
    const StageLayers stage = build_megatron_stage(scenario, 3);
    EXPECT_EQ(rank_parameters(stage), 35'213'824);
    EXPECT_EQ(state_bytes(stage).total(), Bytes{759'682'560});
}

/// gpt3_moe_mcore_te_tp2_pp2_ep4_etp1 with fine-grained offloading: 15 layers, the first three dense, latent attention,
/// experts and a shared expert, on two ranks of four virtual stages.
Scenario latent_moe(const std::string& layout) {
    Scenario scenario = small_gpt();
    types::Model& model = scenario.model;
    model.num_layers = 15;
    model.hidden_size = 1024;
    model.ffn_hidden_size = 4096;
    model.num_attention_heads = 32;
    model.num_query_groups = 32;
    model.kv_channels = 128;
    model.make_vocab_size_divisible_by = 3232;
    model.normalization = types::Normalization::RMSNorm;
    model.activation = types::Activation::swiglu;
    model.position_embedding_type = types::PositionEmbedding::rope;
    model.untie_embeddings_and_output_weights = true;
    model.add_bias_linear = false;
    model.qk_layernorm = true;
    model.attention_dropout = 0;
    model.hidden_dropout = 0;
    model.multi_latent_attention = true;
    model.q_lora_rank = 1536;
    model.kv_lora_rank = 512;
    model.qk_head_dim = 128;
    model.qk_pos_emb_head_dim = 64;
    model.v_head_dim = 128;
    model.rope_type = types::RopeType::yarn;
    model.num_experts = 32;
    model.moe_router_topk = 4;
    model.moe_ffn_hidden_size = 1024;
    model.moe_shared_expert_intermediate_size = 1024;
    model.moe_layer_freq = std::vector<bool>(15, true);
    for (const std::size_t dense : {0U, 1U, 2U}) model.moe_layer_freq[dense] = false;
    scenario.batch.micro_batch_size = 1;
    scenario.batch.global_batch_size = 8;
    scenario.batch.seq_length = 4096;
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.pipeline_model_parallel_size = 2;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = 4;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.parallel.data_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    scenario.parallel.pipeline_model_parallel_layout = layout;
    scenario.optimizer.use_distributed_optimizer = true;
    scenario.hardware.node.device.compute_capability = 100;
    scenario.env["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8";
    return scenario;
}

// The last rank's virtual stages hold 2, 2 and 2 layers and the loss alone. Six layers' YaRN tables, each cosine and
// sine 2 * 4096 * 64 and angles 4 * 4096 * 64 bytes: 12,582,912. Dummy gradients in bf16 of the distinct shapes: output
// layer 25856 x 1024, query down 1536 x 1024 and up 3072 x 1536, key and value down 576 x 1024 and up 4096 x 512,
// projection 1024 x 2048, shared fc1 and expert fc2 1024 x 1024, shared fc2 1024 x 512, expert fc1 2048 x 1024:
// 82,444,288. 6 * 253,584,384 + 12 (102,589,440 / 2 + 150,994,944) + cuBLAS 67,108,864 + Transformer Engine 5 *
// 33,555,456 + memory buffer 8,388,608 + tables 12,582,912 and frequencies 6 * 128 + eight hidden tensors 33,554,432 +
// dummies + scalars 3,584 = 4,320,843,008.
TEST(RecordedStates, LatentAttentionAndExpertsOnFourVirtualStages) {
    const StageLayers stage = build_megatron_stage(latent_moe("Et*3|(tt|)*6L"), 1);
    EXPECT_EQ(elements(stage, ParameterKind::dense), 102'589'440);
    EXPECT_EQ(elements(stage, ParameterKind::expert), 150'994'944);
    EXPECT_EQ(named(stage, "YaRN") + named(stage, "rotary angles"), Bytes{12'582'912});
    EXPECT_EQ(named(stage, "global memory buffer"), Bytes{8'388'608});
    EXPECT_EQ(named(stage, "last received input"), Bytes{4 * 4'194'304});
    EXPECT_EQ(named(stage, "dummy gradient"), Bytes{82'444'288});
    EXPECT_EQ(state_bytes(stage).total(), Bytes{4'320'843'008});
    EXPECT_NEAR(error(state_bytes(stage).total(), 4'313'448'448), 0, 0.002);
}

// 40,213,504 dense parameters more: a copy of the table 25856 * 1024, the projection 2048 * 512, a layer; and 8
// experts.
TEST(RecordedStates, MultiTokenPredictionAddsALayerAndACopyOfTheTable) {
    Scenario scenario = latent_moe("Et*3|(tt|)*6mL");
    scenario.model.mtp_num_layers = 1;
    const StageLayers stage = build_megatron_stage(scenario, 1);
    EXPECT_EQ(elements(stage, ParameterKind::dense), 142'802'944);
    EXPECT_EQ(elements(stage, ParameterKind::expert), 176'160'768);
    EXPECT_NEAR(error(state_bytes(stage).total(), 5'287'965'184), 0, 0.006);
}

}  // namespace
}  // namespace stowage::layers::testing
