#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/support.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += "\n  " + name;
    return text;
}

struct Layout {
    std::int64_t tensor, pipeline, expert, expert_tensor, data;
    bool sequence_parallel;
};

void apply(Scenario& scenario, const Layout& layout) {
    scenario.parallel.tensor_model_parallel_size = layout.tensor;
    scenario.parallel.pipeline_model_parallel_size = layout.pipeline;
    scenario.parallel.expert_model_parallel_size = scenario.model.has_experts() ? layout.expert : 1;
    scenario.parallel.expert_tensor_parallel_size = layout.expert_tensor;
    scenario.parallel.data_parallel_size = layout.data;
    scenario.parallel.sequence_parallel = layout.sequence_parallel;
}

std::vector<Scenario> models() {
    std::vector<Scenario> result{llama3_70b(), qwen3_30b_a3b(), small_gpt(), small_moe()};
    Scenario grouped = small_gpt();  // grouped queries without rotary embedding
    grouped.model.num_query_groups = 4;
    result.push_back(grouped);
    Scenario normed = small_gpt();  // norms over heads without grouped queries, no dropout, one sequence
    normed.model.qk_layernorm = true;
    normed.model.hidden_dropout = 0;
    normed.batch.micro_batch_size = 1;
    result.push_back(normed);
    Scenario mixed = small_moe();  // dense and MoE layers
    mixed.model.moe_layer_freq = {false, true, false, true, false, true, false, true};
    mixed.model.activation = types::Activation::swiglu;
    result.push_back(mixed);
    Scenario latent = deepseek_v3_dense();
    latent.model.num_layers = 8;
    result.push_back(latent);
    latent.model.q_lora_rank = 0;
    latent.model.rope_type = types::RopeType::rope;
    latent.model.hidden_dropout = 0.1;
    result.push_back(latent);
    latent.model.q_lora_rank = 1536;
    latent.model.qk_layernorm = false;
    result.push_back(latent);
    Scenario gate = qwen3_30b_a3b();  // output gate, norms over the whole width, softmax offsets, windows
    gate.model.attention_output_gate = true;
    gate.model.qk_norm_span = types::QkNormSpan::width;
    gate.model.softmax_type = types::SoftmaxType::learnable;
    gate.model.window_size = 127;
    gate.model.window_layers.assign(48, false);
    gate.model.window_layers[1] = true;
    result.push_back(gate);
    return result;
}

/// Several context-parallel ranks, each way of exchanging keys and values.
std::vector<Scenario> context_grid() {
    std::vector<Scenario> result;
    for (const Scenario& model : {llama3_70b(), qwen3_30b_a3b(), deepseek_v3_dense(), small_gpt()})
        for (const auto type : {types::ContextCommunication::p2p, types::ContextCommunication::all_gather,
                                types::ContextCommunication::a2a})
            for (const std::int64_t tensor : {1, 2}) {
                Scenario scenario = model;
                scenario.parallel.context_parallel_size = 2;
                scenario.parallel.cp_comm_type = type;
                scenario.parallel.tensor_model_parallel_size = tensor;
                scenario.parallel.expert_tensor_parallel_size = tensor;
                scenario.parallel.sequence_parallel = tensor > 1;
                if (unsupported_features(scenario).empty()) result.push_back(scenario);
            }
    return result;
}

/// Every selective module of attention alone and all together.
std::vector<Scenario> recompute_grid() {
    using types::RecomputeModule;
    std::vector<Scenario> result;
    Scenario uncompressed = deepseek_v3_dense();
    uncompressed.model.q_lora_rank = 0;
    Scenario plain = deepseek_v3_dense();
    plain.model.rope_type = types::RopeType::rope;
    plain.model.qk_layernorm = false;
    for (const Scenario& model : {llama3_70b(), small_gpt(), deepseek_v3_dense(), uncompressed, plain})
        for (const std::vector<RecomputeModule>& modules : std::vector<std::vector<RecomputeModule>>{
                 {RecomputeModule::core_attn},
                 {RecomputeModule::layernorm},
                 {RecomputeModule::mla_up_proj},
                 {RecomputeModule::core_attn, RecomputeModule::layernorm, RecomputeModule::mla_up_proj}})
            for (const std::int64_t tensor : {1, 2}) {
                Scenario scenario = model;
                scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
                scenario.recompute.recompute_modules = modules;
                scenario.parallel.tensor_model_parallel_size = tensor;
                scenario.parallel.sequence_parallel = tensor > 1;
                if (unsupported_features(scenario).empty()) result.push_back(scenario);
            }
    return result;
}

/// Every model under every layout that it supports.
std::vector<Scenario> grid() {
    std::vector<Scenario> result;
    for (const Scenario& model : models())
        for (const Layout& layout :
             {Layout{1, 1, 1, 1, 1, false}, Layout{2, 1, 1, 2, 1, true}, Layout{4, 2, 2, 2, 4, true},
              Layout{1, 4, 4, 1, 4, false}, Layout{4, 1, 4, 1, 2, true}, Layout{2, 2, 1, 1, 1, false}}) {
            Scenario scenario = model;
            apply(scenario, layout);
            if (scenario.model.has_experts() && layout.tensor > 1 && !layout.sequence_parallel) continue;
            result.push_back(scenario);
        }
    for (const auto& more : {context_grid(), recompute_grid()}) result.insert(result.end(), more.begin(), more.end());
    return result;
}

TEST(References, NothingLeaksAndNothingIsUsedAfterItWasFreed) {
    for (const Scenario& scenario : grid()) {
        for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
            const StageLayers stage = build_megatron_stage(scenario, rank);
            Replay replay(stage);
            replay.forward();
            replay.backward();
            EXPECT_TRUE(replay.faults().empty()) << joined(replay.faults());
            EXPECT_EQ(replay.live(), Bytes{0}) << "alive:" << joined(replay.alive());
        }
    }
}

TEST(References, AfterForwardOnlyWhatIsSavedIsAlive) {
    for (const Scenario& scenario : grid()) {
        const StageLayers stage = build_megatron_stage(scenario, 0);
        Replay replay(stage);
        replay.forward();
        Bytes expected;
        for (std::size_t script : stage.chunks.front().order) expected += saved_bytes(stage.scripts[script]);
        if (stage.pipeline_size > 1) expected += stage.boundary;  // the output on its way to the next stage
        EXPECT_EQ(replay.live(), expected) << joined(replay.alive());
    }
}

TEST(References, TheOptimizerDropsItsTemporaries) {
    for (const Scenario& scenario : grid()) {
        const StageLayers stage = build_megatron_stage(scenario, 0);
        int open = 0;
        for (const Step& step : stage.optimizer.forward) {
            open += step.kind == StepKind::allocate ? 1 : 0;
            open -= step.kind == StepKind::drop ? 1 : 0;
        }
        EXPECT_EQ(open, 0);
    }
}

}  // namespace
}  // namespace stowage::layers::testing
