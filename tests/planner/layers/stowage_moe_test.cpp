// What stowage's own layers with experts save, cost, hold and refuse.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/support.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

LayerScript moe_layer(const Scenario& scenario) {
    for (LayerScript& script : build_stage(scenario, 0).scripts)
        if (script.kind == ScriptKind::moe_layer) return std::move(script);
    return {};
}

const Kernel& kernel_of(const LayerScript& layer, Call call) {
    for (const Kernel& kernel : layer.kernels)
        if (kernel.call.call == call) return kernel;
    throw std::logic_error("no such call");
}

// ------------------------------------------------------------------------------------------------------------- layers

TEST(StowageMoe, MixesDenseLayersAndExpertsByNumber) {
    const StageLayers stage = build_stage(moe_gpt(), 0);
    std::vector<ScriptKind> kinds;
    for (const std::size_t script : stage.chunks.at(0).order) kinds.push_back(stage.scripts[script].kind);
    using K = ScriptKind;
    EXPECT_EQ(kinds, (std::vector<K>{K::embedding, K::dense_layer, K::moe_layer, K::moe_layer, K::moe_layer, K::head}));
}

// 640 tokens of 384 in bf16, 3 of 24 experts each: 1920 rows. Router: 24 logits of 4 bytes and places, twice. Experts:
// rows of 384, fc1's output of 2 x 200 in bf16 and one weight of 4 bytes a row. Shared expert: fc1's output, 2 x 136.
TEST(StowageMoe, SavesEachTensorOnce) {
    const LayerScript layer = moe_layer(moe_gpt());
    std::vector<std::pair<std::string, std::int64_t>> saves;
    bool behind = false;
    for (const SavedTensor& saved : layer.saved) {
        behind = behind || saved.name == "residual.attention";
        if (behind) saves.emplace_back(saved.name, saved.bytes().count);
    }
    constexpr std::int64_t kHidden = 2 * 640 * 384;
    EXPECT_EQ(saves, (std::vector<std::pair<std::string, std::int64_t>>{{"residual.attention", kHidden},
                                                                        {"mlp_norm.rstd", 4 * 640},
                                                                        {"mlp_norm.output", kHidden},
                                                                        {"shared_expert.fc1.output", 2 * 640 * 272},
                                                                        {"router.logits", 4 * 640 * 24},
                                                                        {"dispatch.sources", 4 * 1920},
                                                                        {"dispatch.places", 4 * 1920},
                                                                        {"dispatch.permuted", 2 * 1920 * 384},
                                                                        {"expert_fc1.output", 2 * 1920 * 400},
                                                                        {"dispatch.permuted.weights", 4 * 1920}}));
}

TEST(StowageMoe, HasTheGroupsThatMegatronNames) {
    std::map<Module, std::int64_t> copied;
    for (const TensorGroup& group : tensor_groups(moe_layer(moe_gpt()))) {
        copied[group.module] = group.copied.count;
        EXPECT_EQ(group.freed, group.copied);
    }
    EXPECT_EQ(copied[Module::mlp_norm], 2 * 640 * 384);
    EXPECT_EQ(copied[Module::expert_fc1], 2 * 1920 * 384);
    EXPECT_EQ(copied[Module::moe_act], 2 * 1920 * 400 + 4 * 1920);
    EXPECT_EQ(copied.size(), 7U);  // with those of attention
}

// Three products of 2 x 1920 rows for fc1 and fc2 each; the activation's second run is no product.
TEST(StowageMoe, DoesTheOperationsOfItsRows) {
    double grouped = 0;
    for (const Kernel& kernel : moe_layer(moe_slice()).kernels)
        if (kernel.name.starts_with("expert_fc")) {
            grouped += kernel.flops;
            EXPECT_EQ(kernel.count, 6) << kernel.name;  // 24 experts on 4 ranks
        }
    EXPECT_DOUBLE_EQ(grouped, 3.0 * 2 * 1920 * (384 * 400 + 200 * 384));
}

// What absent ranks would send passes in two collectives, rows and weights; the sums and their gradients have none.
TEST(StowageMoe, WaitsForTheExchangesOfASlice) {
    EXPECT_TRUE(moe_layer(moe_gpt()).collectives.empty());
    std::map<std::string, std::int64_t> sent;
    for (const Collective& collective : moe_layer(moe_slice()).collectives) {
        EXPECT_TRUE(is_token_exchange(collective));
        sent[collective.name] = collective.bytes.count;
    }
    EXPECT_EQ(sent, (std::map<std::string, std::int64_t>{{"dispatch.all_to_all", 1920 * 768},
                                                         {"dispatch.all_to_all.weights", 1920 * 4},
                                                         {"combine.all_to_all", 1920 * 768},
                                                         {"combine_backward.all_to_all", 1920 * 768},
                                                         {"dispatch_backward.all_to_all", 1920 * 768},
                                                         {"dispatch_backward.all_to_all.weights", 1920 * 4}}));
}

// -------------------------------------------------------------------------------------------------------------- router

TEST(StowageMoe, RoutesAsTheModelSays) {
    Scenario scenario = moe_gpt();
    const CallSizes plain = kernel_of(moe_layer(scenario), Call::router_forward).call.sizes;
    EXPECT_FALSE(plain.sigmoid);
    EXPECT_FALSE(plain.softmax_first);
    EXPECT_EQ(plain.router_groups, 0);
    EXPECT_EQ(plain.value, 1);
    scenario.model.moe_router_score_function = types::RouterScore::sigmoid;
    scenario.model.moe_router_pre_softmax = true;
    scenario.model.moe_router_num_groups = 4;
    scenario.model.moe_router_group_topk = 2;
    scenario.model.moe_router_topk_scaling_factor = 2.5;
    for (const Call call : {Call::router_forward, Call::router_backward}) {
        const CallSizes sizes = kernel_of(moe_layer(scenario), call).call.sizes;
        EXPECT_TRUE(sizes.sigmoid);
        EXPECT_TRUE(sizes.softmax_first);
        EXPECT_EQ(sizes.router_groups, 4);
        EXPECT_EQ(sizes.router_topk_groups, 2);
        EXPECT_EQ(sizes.value, 2.5);
        EXPECT_EQ(sizes.experts, 24);
        EXPECT_EQ(sizes.topk, 3);
    }
}

// -----------------------------------------------------------------------------------------------------------
// parameters

// A layer of experts: norm, router, 24 experts of 3 x 200 x 384, a shared one of 3 x 136 x 384.
TEST(StowageMoe, CountsExpertsOfAllRanks) {
    const std::int64_t attention = 384 + 384 * (6 + 4) * 48 + 288 * 384;
    const std::int64_t dense = 384 + 384 * 3000;
    const std::int64_t experts = 384 + 24 * 384 + 24 * 3 * 200 * 384;
    const std::int64_t ends = 2 * 1000 * 384 + 384;
    EXPECT_EQ(model_parameters(moe_gpt()), 4 * attention + dense + 3 * (experts + 3 * 136 * 384) + ends);
    EXPECT_EQ(model_parameters(moe_slice()), 4 * attention + dense + 3 * experts + ends);
    const std::int64_t padding = 2 * 24 * 384;
    const std::int64_t own = 384 + 24 * 384 + 6 * 3 * 200 * 384;
    EXPECT_EQ(rank_parameters(build_stage(moe_slice(), 0)), 4 * attention + dense + 3 * own + ends + padding);
    for (const Parameter& parameter : moe_layer(moe_slice()).parameters)
        EXPECT_EQ(parameter.kind == ParameterKind::expert, parameter.name.starts_with("expert_fc")) << parameter.name;
}

// Published: 30,532,122,624; the same whoever's layers run it.
TEST(StowageMoe, OfQwen3HaveThePublishedParameters) {
    Scenario scenario = reader::read_scenario(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/qwen3-30b-a3b-ep8.yaml");
    EXPECT_EQ(model_parameters(scenario), 30'532'122'624);
    scenario.implementation = types::Implementation::megatron;
    EXPECT_EQ(model_parameters(scenario), 30'532'122'624);
}

TEST(StowageMoe, KeepsTheAssignmentOfOneMicrobatch) {
    std::map<std::string, Bytes> states;
    for (const StateBuffer& state : build_stage(moe_slice(), 0).states)
        if (state.role == StowageState::assignment) states[state.name] = state.bytes;
    EXPECT_EQ(states, (std::map<std::string, Bytes>{{"assignment of tokens to experts", Bytes{4 * 640 * 3}}}));
    for (const StateBuffer& state : build_stage(grouped_gpt(), 0).states)
        EXPECT_NE(state.role, StowageState::assignment);
}

// ------------------------------------------------------------------------------------------------------------ refusals

TEST(StowageMoe, NamesWhatItLacks) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"experts with activation gelu", [](Scenario& s) { s.model.activation = types::Activation::gelu; }},
        {"experts with biases", [](Scenario& s) { s.model.add_bias_linear = true; }},
        {"moe_shared_expert_gate: true", [](Scenario& s) { s.model.moe_shared_expert_gate = true; }},
        {"experts of a latent width", [](Scenario& s) { s.model.moe_latent_size = 96; }},
        {"moe_grouped_gemm: false", [](Scenario& s) { s.model.moe_grouped_gemm = false; }},
        {"a capacity of experts without padding", [](Scenario& s) { s.model.moe_expert_capacity_factor = 1.0; }},
        {"num_experts: 20", [](Scenario& s) { s.model.num_experts = 20; }},
        {"num_experts: 1024", [](Scenario& s) { s.model.num_experts = 1024; }},
        {"moe_router_topk: 17", [](Scenario& s) { s.model.moe_router_topk = 17; }},
        {"moe_ffn_hidden_size: 204", [](Scenario& s) { s.model.moe_ffn_hidden_size = 204; }},
        {"moe_shared_expert_intermediate_size: 140",
         [](Scenario& s) { s.model.moe_shared_expert_intermediate_size = 140; }},
        {"experts that expert parallelism does not divide",
         [](Scenario& s) { s.parallel.expert_model_parallel_size = s.parallel.data_parallel_size = 5; }},
        {"an expert layout that the ranks of a pipeline stage do not divide",
         [](Scenario& s) { s.parallel.expert_model_parallel_size = 2; }},
        {"moe_token_dispatcher_type: allgather",
         [](Scenario& s) { s.parallel.moe_token_dispatcher_type = types::TokenDispatcher::allgather; }},
        {"routing: recorded", [](Scenario& s) { s.batch.routing = types::Routing::recorded; }},
        {"expert parallelism of a model without experts",
         [](Scenario& s) {
             s.model.num_experts = 0;
             s.parallel.expert_model_parallel_size = s.parallel.data_parallel_size = 2;
         }},
        {"recomputation of gdn_norm_out",
         [](Scenario& s) {
             s.recompute.recompute_granularity = types::RecomputeGranularity::selective;
             s.recompute.recompute_modules = {types::RecomputeModule::gdn_norm_out};
         }},
    };
    const auto refusal = [](const Scenario& scenario) -> std::string {
        try {
            build_stage(scenario, 0);
        } catch (const types::UnsupportedError& error) {
            return error.what();
        }
        return {};
    };
    ASSERT_EQ(refusal(moe_gpt()), "");
    for (const auto& [feature, change] : cases) {
        Scenario scenario = moe_gpt();
        change(scenario);
        EXPECT_EQ(refusal(scenario), "not supported by the layers of implementation stowage:\n  - " + feature);
    }
}

}  // namespace
}  // namespace stowage::layers::testing
