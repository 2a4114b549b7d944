// A plan reloads to the scenario that it was made from, whatever field differs from its default.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "reports/hardware_json.hpp"
#include "reports/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/reports/scenario_fields.hpp"

namespace stowage::reports {
namespace {

using types::DataType;
using types::Scenario;

types::Model model_with_everything() {
    types::Model model;
    model.name = "everything";
    model.num_layers = 6;
    model.hidden_size = 768;
    model.ffn_hidden_size = 3000;
    model.num_attention_heads = 16;
    model.num_query_groups = 16;
    model.kv_channels = 80;
    model.vocab_size = 5000;
    model.make_vocab_size_divisible_by = 64;
    model.max_position_embeddings = 2048;
    model.normalization = types::Normalization::LayerNorm;
    model.activation = types::Activation::quick_geglu;
    model.position_embedding_type = types::PositionEmbedding::learned_absolute;
    model.untie_embeddings_and_output_weights = false;
    model.add_bias_linear = model.add_qkv_bias = model.qk_layernorm = true;
    model.qk_norm_span = types::QkNormSpan::width;
    model.attention_output_gate = true;
    model.softmax_type = types::SoftmaxType::learnable;
    model.window_size = 127;
    model.window_layers = {true, false, true, true, true, false};
    model.attention_dropout = 0.1;
    model.hidden_dropout = 0.2;
    model.multi_latent_attention = true;
    model.q_lora_rank = 96;
    model.kv_lora_rank = 48;
    model.qk_head_dim = 40;
    model.qk_pos_emb_head_dim = 24;
    model.v_head_dim = 56;
    model.rope_type = types::RopeType::yarn;
    model.num_experts = 8;
    model.moe_router_topk = 3;
    model.moe_ffn_hidden_size = 512;
    model.moe_shared_expert_intermediate_size = 256;
    model.moe_shared_expert_gate = true;
    model.moe_latent_size = 384;
    model.moe_grouped_gemm = false;
    model.moe_permute_fusion = true;
    model.deterministic_mode = true;
    model.transformer_impl = types::TransformerImpl::local;
    model.masked_softmax_fusion = false;
    model.moe_router_score_function = types::RouterScore::sigmoid;
    model.moe_router_pre_softmax = true;
    model.moe_router_num_groups = 4;
    model.moe_router_group_topk = 2;
    model.moe_router_topk_scaling_factor = 2.5;
    model.moe_router_enable_expert_bias = true;
    model.moe_expert_capacity_factor = 1.25;
    model.moe_pad_expert_input_to_capacity = true;
    model.moe_layer_freq = {false, true, true, true, false, true};
    model.mtp_num_layers = 1;
    model.mtp_loss_scaling_factor = 0.3;
    model.mixers.assign(6, types::Mixer::gated_delta_net);
    model.mixers.back() = types::Mixer::attention;
    model.mamba_state_dim = 64;
    model.mamba_head_dim = 32;
    model.mamba_num_heads = 48;
    model.mamba_num_groups = 4;
    model.linear_conv_kernel_dim = 3;
    model.linear_key_head_dim = 64;
    model.linear_value_head_dim = 32;
    model.linear_num_key_heads = 4;
    model.linear_num_value_heads = 12;
    return model;
}

/// Half layers, which exclude patterns over whole ones.
types::Model hybrid_model() {
    using types::FeedForward;
    using types::Mixer;
    types::Model model = model_with_everything();
    model.num_query_groups = 4;
    model.multi_latent_attention = false;
    model.q_lora_rank = model.kv_lora_rank = model.qk_head_dim = model.qk_pos_emb_head_dim = model.v_head_dim = 0;
    model.activation = types::Activation::squared_relu;
    model.moe_layer_freq.clear();
    model.mixers = {Mixer::mamba, Mixer::none, Mixer::attention, Mixer::none, Mixer::gated_delta_net, Mixer::none};
    model.feed_forward = {FeedForward::none,  FeedForward::moe,  FeedForward::none,
                          FeedForward::dense, FeedForward::none, FeedForward::moe};
    model.mtp_num_layers = 2;
    model.mtp_mixers = {Mixer::attention, Mixer::none};
    model.mtp_feed_forward = {FeedForward::none, FeedForward::moe};
    return model;
}

types::Optimizer optimizer_with_everything() {
    types::Optimizer optimizer;
    optimizer.use_distributed_optimizer = optimizer.overlap_grad_reduce = optimizer.overlap_param_gather = true;
    optimizer.num_distributed_optimizer_instances = 2;
    optimizer.use_precision_aware_optimizer = true;
    optimizer.main_grads_dtype = DataType::bf16;
    optimizer.main_params_dtype = DataType::fp16;
    optimizer.exp_avg_dtype = DataType::fp8;
    optimizer.exp_avg_sq_dtype = DataType::bf16;
    optimizer.grad_reduce_in_bf16 = true;
    optimizer.gradient_accumulation_fusion = false;
    optimizer.fp8_param_gather = true;
    optimizer.optimizer_cpu_offload = true;
    optimizer.optimizer_offload_fraction = 0.25;
    optimizer.overlap_cpu_optimizer_d2h_h2d = true;
    return optimizer;
}

void give_kernels_every_loss(types::Device& device) {
    device.gemm_fp8_blockwise.rate = 999e12;
    device.gemm_ramp = types::Nanoseconds{2500};
    device.attention_forward = {277, 193};
    device.attention_backward = {648, 133};
    device.attention_head_sizes = {{64, 0.67, 0.74}, {256, 1.08, 0.8}};
    device.rates_by_duty = {{0.5, 1.16, 1.25}, {0.75, 1.13, 1.13}};
}

void expect_every_loss(const types::Device& device) {
    EXPECT_DOUBLE_EQ(device.gemm_fp8_blockwise.rate, 999e12);
    EXPECT_EQ(device.gemm_ramp, types::Nanoseconds{2500});
    EXPECT_EQ(device.attention_forward.start_keys, 277);
    EXPECT_EQ(device.attention_forward.tail_blocks, 193);
    EXPECT_EQ(device.attention_backward.start_keys, 648);
    EXPECT_EQ(device.attention_backward.tail_blocks, 133);
    ASSERT_EQ(device.attention_head_sizes.size(), 2U);
    EXPECT_EQ(device.attention_head_sizes[1].head_size, 256);
    EXPECT_EQ(device.attention_head_sizes[1].forward, 1.08);
    EXPECT_EQ(device.attention_head_sizes[1].backward, 0.8);
    ASSERT_EQ(device.rates_by_duty.size(), 2U);
    EXPECT_EQ(device.rates_by_duty[0].attention, 1.25);
    EXPECT_EQ(device.rates_by_duty[1].duty, 0.75);
    EXPECT_EQ(device.rates_by_duty[1].gemm, 1.13);
}

Scenario common(const types::Model& model) {
    Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    scenario.rules = types::RuleSet::core_0_18;
    scenario.implementation = types::Implementation::stowage;
    scenario.env = {{"A", "1"}};
    scenario.model = model;
    scenario.hardware.nodes = 8;
    scenario.hardware.node.device.gemm_fp8.rate = 1234.5e12;
    scenario.hardware.node.device.strided_bandwidth.rate = 800e9;
    give_kernels_every_loss(scenario.hardware.node.device);
    scenario.hardware.node.host.memory_bandwidth.rate = 400e9;
    scenario.precision = types::Precision::fp8_blockwise;
    scenario.optimizer = optimizer_with_everything();
    scenario.limits = {types::Bytes{12345678901}, types::Bytes{98765432109}};
    scenario.objective = types::Objective::memory;
    return scenario;
}

/// 32 ranks: tensor 2, pipeline 2 with 3 virtual stages, context 4, data 2.
Scenario interleaved() {
    Scenario scenario = common(model_with_everything());
    types::ParallelLayout& parallel = scenario.parallel;
    parallel = {};
    parallel.tensor_model_parallel_size = parallel.pipeline_model_parallel_size = parallel.data_parallel_size = 2;
    parallel.num_virtual_stages_per_pipeline_rank = 3;
    parallel.context_parallel_size = 4;
    parallel.expert_model_parallel_size = 4;
    parallel.expert_tensor_parallel_size = 2;
    parallel.sequence_parallel = true;
    parallel.pipeline_model_parallel_layout = "Et|tt|t|t|tm|L";
    parallel.microbatch_group_size_per_virtual_pipeline_stage = 3;
    parallel.cp_comm_type = types::ContextCommunication::a2a_p2p;
    parallel.hierarchical_context_parallel_sizes = {2, 2};
    parallel.moe_token_dispatcher_type = types::TokenDispatcher::flex;
    parallel.moe_flex_dispatcher_backend = types::FlexDispatcher::hybridep;
    parallel.overlap_moe_expert_parallel_comm = parallel.delay_wgrad_compute = true;
    parallel.tp_comm_overlap = parallel.defer_embedding_wgrad_compute = true;
    parallel.wgrad_deferral_limit = 2;
    scenario.batch = {2, 24, 8192, types::Routing::skewed, 1.5};
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::mla_up_proj, types::RecomputeModule::layernorm};
    scenario.cuda_graph = {types::CudaGraphImpl::transformer_engine, {types::CudaGraphModule::attn}, 2};
    scenario.offload = {types::ModuleSet{types::Module::moe_act}, 0.3, 1024, 2048, 5, true};
    return scenario;
}

/// 32 ranks: pipeline 4 with counted ends, data 8; all layers recomputed.
Scenario counted() {
    Scenario scenario = common(hybrid_model());
    types::ParallelLayout& parallel = scenario.parallel;
    parallel = {};
    parallel.pipeline_model_parallel_size = 4;
    parallel.data_parallel_size = 8;
    parallel.account_for_embedding_in_pipeline_split = parallel.account_for_loss_in_pipeline_split = true;
    parallel.overlap_p2p_comm = false;
    parallel.moe_shared_expert_overlap = true;
    scenario.batch = {1, 64, 4096, types::Routing::balanced, 1};
    scenario.recompute = {types::RecomputeGranularity::full, types::RecomputeMethod::uniform, 2, {}};
    return scenario;
}

/// 32 ranks: pipeline 4 with given ends, data 8; a plain optimizer.
Scenario given_ends() {
    Scenario scenario = counted();
    scenario.parallel.account_for_embedding_in_pipeline_split = false;
    scenario.parallel.account_for_loss_in_pipeline_split = false;
    scenario.parallel.decoder_first_pipeline_num_layers = 1;
    scenario.parallel.decoder_last_pipeline_num_layers = 1;
    scenario.precision = types::Precision::bf16;
    scenario.optimizer = {};
    scenario.optimizer.optimizer = types::OptimizerKind::muon;
    return scenario;
}

Scenario read_back(const Scenario& scenario) {
    return reader::read_scenario_text("plan.json", to_text(scenario_json(scenario)));
}

/// Expects the same of every field, and gives the place of one that differs.
template <class Type>
void expect_same(const Type& read, const Type& written, const std::string& what) {
    const auto left = types::fields_of(read);
    const auto right = types::fields_of(written);
    std::size_t place = 0;
    const auto same = [&](const auto& a, const auto& b) {
        EXPECT_TRUE(a == b) << what << ", field " << place;
        ++place;
    };
    std::apply([&](const auto&... a) { std::apply([&](const auto&... b) { (same(a, b), ...); }, right); }, left);
}

TEST(ScenarioFields, ReadBackAsTheyWereWritten) {
    for (const Scenario& scenario : {interleaved(), counted(), given_ends()}) {
        const Scenario read = read_back(scenario);
        expect_same(read.model, scenario.model, "model");
        expect_same(read.parallel, scenario.parallel, "parallel");
        expect_same(read.batch, scenario.batch, "batch");
        expect_same(read.optimizer, scenario.optimizer, "optimizer");
        expect_same(read.recompute, scenario.recompute, "recompute");
        expect_same(read.cuda_graph, scenario.cuda_graph, "cuda_graph");
        expect_same(read.offload, scenario.offload, "offload");
        expect_same(read.limits, scenario.limits, "limits");
        expect_same(read, scenario, "scenario");
        EXPECT_EQ(hardware_json(read.hardware.node), hardware_json(scenario.hardware.node));
        EXPECT_DOUBLE_EQ(read.hardware.node.device.gemm_fp8.rate, 1234.5e12);
        EXPECT_DOUBLE_EQ(read.hardware.node.device.strided_bandwidth.rate, 800e9);
        expect_every_loss(read.hardware.node.device);
        EXPECT_DOUBLE_EQ(read.hardware.node.host.memory_bandwidth.rate, 400e9);
    }
}

/// Places of the fields that differ from their defaults in some scenario.
template <class Type>
void expect_all_differ(const std::vector<Type>& values, const std::string& what) {
    const Type none{};
    std::vector<bool> differs(std::tuple_size_v<decltype(types::fields_of(none))>);
    for (const Type& value : values) {
        std::size_t place = 0;
        const auto note = [&](const auto& a, const auto& b) {
            if (!(a == b)) differs[place] = true;
            ++place;
        };
        const auto fields = types::fields_of(value);
        std::apply([&](const auto&... a) { std::apply([&](const auto&... b) { (note(a, b), ...); }, fields); },
                   types::fields_of(none));
    }
    for (std::size_t place = 0; place < differs.size(); ++place)
        EXPECT_TRUE(differs[place]) << what << ", field " << place << " has its default in every scenario of this test";
}

TEST(ScenarioFields, AllDifferFromTheirDefaultsInSomeScenarioOfThisTest) {
    std::vector<types::Model> models;
    std::vector<types::ParallelLayout> layouts;
    std::vector<types::Batch> batches;
    std::vector<types::Optimizer> optimizers;
    std::vector<types::Recompute> recomputes;
    for (const Scenario& scenario : {interleaved(), counted(), given_ends()}) {
        models.push_back(scenario.model);
        layouts.push_back(scenario.parallel);
        batches.push_back(scenario.batch);
        optimizers.push_back(scenario.optimizer);
        recomputes.push_back(scenario.recompute);
    }
    expect_all_differ(models, "model");
    expect_all_differ(layouts, "parallel");
    expect_all_differ(batches, "batch");
    expect_all_differ(optimizers, "optimizer");
    expect_all_differ(recomputes, "recompute");
    expect_all_differ<types::CudaGraph>({interleaved().cuda_graph}, "cuda_graph");
    expect_all_differ<types::Offload>({interleaved().offload}, "offload");
    expect_all_differ<types::Limits>({interleaved().limits}, "limits");
}

}  // namespace
}  // namespace stowage::reports
