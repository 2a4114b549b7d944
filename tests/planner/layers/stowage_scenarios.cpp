#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

/// 1 TB/s of memory, 400 TFLOP/s, copies of 20 us a MiB.
types::Node made_up_node() {
    constexpr std::int64_t kMiB = 1 << 20;
    types::Node node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, types::Nanoseconds{2000}};
    node.network = {{10e9}, types::Nanoseconds{5000}};
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {4e14};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    const types::CopyCurve curve(
        {{types::Bytes{kMiB}, types::Nanoseconds{20'000}}, {types::Bytes{2 * kMiB}, types::Nanoseconds{40'000}}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    return node;
}

}  // namespace

types::Scenario bare_stack() {
    types::Scenario scenario;
    scenario.hardware.node = made_up_node();
    scenario.implementation = types::Implementation::stowage;
    scenario.batch = {.micro_batch_size = 2, .global_batch_size = 8, .seq_length = 320};
    scenario.optimizer.optimizer = types::OptimizerKind::none;
    types::Model& model = scenario.model;
    model.num_layers = 4;
    model.hidden_size = 384;
    model.ffn_hidden_size = 1000;
    model.num_attention_heads = 6;
    model.num_query_groups = 6;
    model.kv_channels = 56;
    model.vocab_size = 0;
    model.position_embedding_type = types::PositionEmbedding::none;
    return scenario;
}

types::Scenario plain_gpt() {
    types::Scenario scenario = bare_stack();
    types::Model& model = scenario.model;
    model.vocab_size = 1000;
    model.normalization = types::Normalization::LayerNorm;
    model.activation = types::Activation::gelu;
    model.add_bias_linear = true;
    return scenario;
}

types::Scenario grouped_gpt() {
    types::Scenario scenario = bare_stack();
    types::Model& model = scenario.model;
    model.vocab_size = 1000;
    model.num_query_groups = 2;
    model.kv_channels = 48;
    model.position_embedding_type = types::PositionEmbedding::rope;
    scenario.optimizer.grad_reduce_in_bf16 = true;
    return scenario;
}

types::Scenario latent_gpt() {
    types::Scenario scenario = grouped_gpt();
    types::Model& model = scenario.model;
    model.multi_latent_attention = true;
    model.qk_layernorm = true;
    model.num_query_groups = 6;
    model.q_lora_rank = 136;
    model.kv_lora_rank = 88;
    model.qk_head_dim = 40;
    model.qk_pos_emb_head_dim = 16;
    model.v_head_dim = 32;
    return scenario;
}

types::Scenario moe_gpt() {
    types::Scenario scenario = grouped_gpt();
    types::Model& model = scenario.model;
    model.num_experts = 24;
    model.moe_router_topk = 3;
    model.moe_ffn_hidden_size = 200;
    model.moe_shared_expert_intermediate_size = 136;
    model.moe_layer_freq = {false, true, true, true};
    return scenario;
}

types::Scenario predicting_gpt() {
    types::Scenario scenario = moe_gpt();
    scenario.model.mtp_num_layers = 1;
    return scenario;
}

types::Scenario moe_slice() {
    types::Scenario scenario = moe_gpt();
    scenario.model.moe_shared_expert_intermediate_size = 0;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.parallel.data_parallel_size = 4;
    scenario.batch.global_batch_size = 32;
    return scenario;
}

types::Scenario tensor_slice(std::int64_t ranks, bool sequence_parallel) {
    types::Scenario scenario = grouped_gpt();
    scenario.model.num_attention_heads = 8;
    scenario.model.num_query_groups = 8;
    scenario.model.ffn_hidden_size = 1088;
    scenario.parallel.tensor_model_parallel_size = ranks;
    scenario.parallel.sequence_parallel = sequence_parallel;
    return scenario;
}

}  // namespace stowage::layers::testing
