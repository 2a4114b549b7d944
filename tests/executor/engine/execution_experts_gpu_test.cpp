// Layers with experts on a device: the same bits under every policy, allocator and graph, and a routing that is more
// than planned for.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/types/error.hpp"
#include "tests/executor/engine/execution_requests.hpp"

namespace stowage::executor {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::Scenario;

const ModuleSet kExperts{Module::expert_fc1, Module::moe_act};
const std::vector<CudaGraphModule> kRouter{CudaGraphModule::attn, CudaGraphModule::moe_router,
                                           CudaGraphModule::moe_preprocess};

class ExpertsGpu : public support::GpuTest {};

Scenario tiny() { return shipped_scenario("moe-tiny"); }

/// One of four ranks, with four of the experts.
Scenario slice() {
    Scenario scenario = tiny();
    scenario.parallel.expert_model_parallel_size = scenario.parallel.data_parallel_size = 4;
    scenario.batch.global_batch_size *= 4;
    return scenario;
}

/// The same with its routing skewed.
Scenario skewed_slice(double skew) {
    Scenario scenario = slice();
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = skew;
    return scenario;
}

ExecutionRequest request_for(Scenario scenario) {
    return digested_request(std::move(scenario), 4, "stowage-moe-tiny-gemms.json");
}

ExecutionRequest with_megatron(ExecutionRequest request, bool delayed = false) {
    request.choice.delay_until_cuda_graph = delayed;
    return under_megatron(std::move(request), kExperts);
}

ExecutionRequest with_stowage(ExecutionRequest request) {
    return under_stowage(std::move(request),
                         {Module::core_attn, Module::attn_proj, Module::expert_fc1, Module::moe_act});
}

ExecutionRequest with_router_graphs(ExecutionRequest request) {
    return with_graphs(std::move(request), CudaGraphImpl::transformer_engine, kRouter);
}

// Weights are small and tokens are random: every token is about equally likely, so the loss is ln(4096) = 8.32.
TEST_F(ExpertsGpu, LossOfAnUntrainedModelIsTheLogarithmOfItsVocabulary) {
    const recording::Measurement measured = run(request_for(tiny()));
    ASSERT_EQ(measured.losses.size(), 4U);
    for (const double loss : measured.losses) EXPECT_NEAR(loss, std::log(4096.0), 0.4);
}

TEST_F(ExpertsGpu, EveryPolicyGivesTheSameBits) {
    for (const Scenario& scenario : {tiny(), slice(), skewed_slice(1.3)}) {
        const ExecutionRequest plain = request_for(scenario);
        ExecutionRequest planned = plain;
        planned.allocator = AllocatorKind::planned;
        expect_equal_runs({plain, plain, planned, with_megatron(plain), with_stowage(plain)});
    }
}

TEST_F(ExpertsGpu, GraphsOfTheRouterGiveTheSameBits) {
    for (const Scenario& scenario : {tiny(), slice()}) {
        const ExecutionRequest plain = request_for(scenario);
        expect_equal_runs({plain, with_router_graphs(plain), with_router_graphs(with_megatron(plain)),
                           with_router_graphs(with_megatron(plain, true)), with_router_graphs(with_stowage(plain))});
    }
}

// The router's scores in every form, groups of experts, and softmax over all of them.
TEST_F(ExpertsGpu, EveryRouterGivesTheSameBitsUnderEveryPolicy) {
    for (const bool sigmoid : {false, true}) {
        Scenario scenario = tiny();
        types::Model& model = scenario.model;
        model.moe_router_score_function = sigmoid ? types::RouterScore::sigmoid : types::RouterScore::softmax;
        model.moe_router_pre_softmax = !sigmoid;
        model.moe_router_num_groups = 4;
        model.moe_router_group_topk = 2;
        model.moe_router_topk_scaling_factor = 2.5;
        const ExecutionRequest plain = request_for(scenario);
        expect_equal_runs({plain, with_stowage(plain), with_router_graphs(with_megatron(plain))});
    }
}

// Experts of a fixed size need no counts: everything may be one graph.
TEST_F(ExpertsGpu, PaddedExpertsRunInOneGraphOfTheIteration) {
    Scenario scenario = tiny();
    scenario.model.moe_expert_capacity_factor = 1.25;
    scenario.model.moe_pad_expert_input_to_capacity = true;
    const ExecutionRequest plain = request_for(scenario);
    ExecutionRequest whole = plain;
    whole.scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::full_iteration;
    expect_equal_runs({plain, whole});
}

TEST_F(ExpertsGpu, RecomputationGivesTheSameBits) {
    using types::RecomputeModule;
    std::vector<ExecutionRequest> requests{request_for(tiny())};
    for (const RecomputeModule module :
         {RecomputeModule::layernorm, RecomputeModule::shared_experts, RecomputeModule::moe_act}) {
        requests.push_back(request_for(tiny()));
        requests.back().scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
        requests.back().scenario.recompute.recompute_modules = {module};
    }
    expect_equal_runs(requests);
}

/// What the run says when it stops.
types::ExitCode stops_with(const ExecutionRequest& request, std::string& words) {
    try {
        run(request);
    } catch (const types::Error& error) {
        words = error.what();
        return error.code();
    }
    return types::ExitCode::yes;
}

// Planned for 1.3 times the mean: 512 x 4 / 16 = 128 rows of an expert from one rank become 167. Routed at 1.5 times,
// its experts get 192 each; eager and in replays.
TEST_F(ExpertsGpu, ARoutingBeyondThePlanIsAnError) {
    const ExecutionRequest planned = request_for(skewed_slice(1.3));
    std::string words;
    for (const ExecutionRequest& request : {planned, with_router_graphs(planned)}) {
        EXPECT_EQ(stops_with(request, words), types::ExitCode::yes) << words;
        ExecutionRequest beyond = request;
        beyond.routing_skew = 1.5;
        EXPECT_EQ(stops_with(beyond, words), types::ExitCode::no);
        EXPECT_NE(words.find("192"), std::string::npos) << words;
        EXPECT_NE(words.find("167"), std::string::npos) << words;
    }
}

}  // namespace
}  // namespace stowage::executor
