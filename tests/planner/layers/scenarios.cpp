#include "tests/planner/layers/scenarios.hpp"

#include <stdexcept>

#include "planner/layers/megatron_stage.hpp"

namespace stowage::layers::testing {
namespace {

types::Scenario on_hopper() {
    types::Scenario scenario;
    scenario.hardware.node.device.compute_capability = 90;
    scenario.batch.seq_length = 4096;
    return scenario;
}

types::Scenario qwen3(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t expert_width) {
    types::Scenario scenario = on_hopper();
    types::Model& model = scenario.model;
    model.num_layers = layers;
    model.hidden_size = hidden;
    model.ffn_hidden_size = 3 * hidden;
    model.num_attention_heads = heads;
    model.num_query_groups = 4;
    model.kv_channels = 128;
    model.vocab_size = 151936;
    model.qk_layernorm = true;
    model.num_experts = 128;
    model.moe_router_topk = 8;
    model.moe_ffn_hidden_size = expert_width;
    return scenario;
}

}  // namespace

types::Scenario llama3_70b() {
    types::Scenario scenario = on_hopper();
    types::Model& model = scenario.model;
    model.num_layers = 80;
    model.hidden_size = 8192;
    model.ffn_hidden_size = 28672;
    model.num_attention_heads = 64;
    model.num_query_groups = 8;
    model.kv_channels = 128;
    model.vocab_size = 128256;
    return scenario;
}

types::Scenario qwen3_30b_a3b() { return qwen3(48, 2048, 32, 768); }
types::Scenario qwen3_235b_a22b() { return qwen3(94, 4096, 64, 1536); }

types::Scenario deepseek_v3_dense() {
    types::Scenario scenario = on_hopper();
    types::Model& model = scenario.model;
    model.num_layers = 61;
    model.hidden_size = 7168;
    model.ffn_hidden_size = 18432;
    model.num_attention_heads = 128;
    model.num_query_groups = 128;
    model.kv_channels = 128;
    model.vocab_size = 129280;
    model.qk_layernorm = true;
    model.multi_latent_attention = true;
    model.q_lora_rank = 1536;
    model.kv_lora_rank = 512;
    model.qk_head_dim = 128;
    model.qk_pos_emb_head_dim = 64;
    model.v_head_dim = 128;
    model.rope_type = types::RopeType::yarn;
    return scenario;
}

types::Scenario small_gpt() {
    types::Scenario scenario = on_hopper();
    scenario.batch.seq_length = 1024;
    scenario.batch.micro_batch_size = 4;
    types::Model& model = scenario.model;
    model.num_layers = 12;
    model.hidden_size = 512;
    model.ffn_hidden_size = 2048;
    model.num_attention_heads = 8;
    model.num_query_groups = 8;
    model.kv_channels = 64;
    model.vocab_size = 50257;
    model.max_position_embeddings = 1024;
    model.normalization = types::Normalization::LayerNorm;
    model.activation = types::Activation::gelu;
    model.position_embedding_type = types::PositionEmbedding::learned_absolute;
    model.untie_embeddings_and_output_weights = false;
    model.add_bias_linear = true;
    model.attention_dropout = 0.1;
    model.hidden_dropout = 0.1;
    return scenario;
}

types::Scenario seven_billion() {
    types::Scenario scenario = small_gpt();
    types::Model& model = scenario.model;
    model.num_layers = 32;
    model.hidden_size = 4096;
    model.ffn_hidden_size = 4 * 4096;
    model.num_attention_heads = 32;
    model.num_query_groups = 8;
    model.kv_channels = 128;
    model.vocab_size = 131073;
    model.max_position_embeddings = 8192;
    model.untie_embeddings_and_output_weights = true;
    scenario.batch.micro_batch_size = 2;
    scenario.batch.seq_length = 8192;
    return scenario;
}

types::Scenario small_moe() {
    types::Scenario scenario = on_hopper();
    scenario.batch.seq_length = 1024;
    scenario.batch.micro_batch_size = 2;
    types::Model& model = scenario.model;
    model.num_layers = 8;
    model.hidden_size = 1024;
    model.ffn_hidden_size = 4096;
    model.num_attention_heads = 8;
    model.num_query_groups = 8;
    model.kv_channels = 128;
    model.vocab_size = 1024;
    model.activation = types::Activation::gelu;
    model.num_experts = 4;
    model.moe_router_topk = 2;
    model.moe_ffn_hidden_size = 4096;
    return scenario;
}

LayerScript script_of(const types::Scenario& scenario, ScriptKind kind, std::int64_t rank) {
    for (LayerScript& script : build_megatron_stage(scenario, rank).scripts)
        if (script.kind == kind) return script;
    throw std::invalid_argument("no such script on this rank");
}

}  // namespace stowage::layers::testing
