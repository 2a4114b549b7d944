// Layers with experts on a device: the same bits under every policy, allocator and graph, and a routing that is more
// than planned for.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/device.hpp"
#include "executor/engine/engine.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/choose_free.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"

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

class ExpertsGpu : public ::testing::Test {
protected:
    void SetUp() override {
        const auto reason = no_device_reason();
        if (!reason) return;
        if (std::getenv("STOWAGE_REQUIRE_GPU") != nullptr) FAIL() << *reason;
        GTEST_SKIP() << *reason;
    }
};

/// Tests are carried to machines where the tree lies elsewhere.
Scenario tiny() {
    const char* const told = std::getenv("STOWAGE_SOURCE_DIR");
    const std::string folder = told != nullptr ? told : STOWAGE_SOURCE_DIR;
    return reader::load_scenario(folder + "/scenarios/moe-tiny.yaml").scenario;
}

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

/// Four steps, each of whose gradients counts.
ExecutionRequest request_for(Scenario scenario) {
    ExecutionRequest request;
    request.scenario = std::move(scenario);
    request.choice.min_offloaded_tensor_size = 1024;
    request.policy = "none";
    request.steps = 4;
    request.warmup_steps = 1;
    request.digest_every_step = true;
    request.profile = false;
    request.gemm_table = ::testing::TempDir() + "stowage-moe-tiny-gemms.json";
    return request;
}

ExecutionRequest with_megatron(ExecutionRequest request, bool delayed = false) {
    request.policy = "megatron";
    request.choice.modules = kExperts;
    request.choice.delay_until_cuda_graph = delayed;
    return request;
}

ExecutionRequest with_stowage(ExecutionRequest request) {
    request.policy = "stowage";
    request.choice.modules = {Module::core_attn, Module::attn_proj, Module::expert_fc1, Module::moe_act};
    request.choice.free = program::choose_free(layers::build_stage(request.scenario, 0), request.choice, 1.0);
    request.allocator = AllocatorKind::planned;
    return request;
}

ExecutionRequest with_graphs(ExecutionRequest request) {
    request.scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
    request.scenario.cuda_graph.cuda_graph_modules = kRouter;
    return request;
}

recording::Measurement run(const ExecutionRequest& request) {
    Execution execution(request, {});
    execution.reach_steady();
    execution.measure();
    return execution.take().measurement;
}

void expect_equal_runs(const std::vector<ExecutionRequest>& requests) {
    const recording::Measurement first = run(requests.front());
    for (std::size_t i = 1; i < requests.size(); ++i) {
        const recording::Measurement measured = run(requests[i]);
        EXPECT_EQ(measured.run_digest, first.run_digest) << "request " << i;
        EXPECT_EQ(measured.losses, first.losses) << "request " << i;
    }
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
        expect_equal_runs({plain, with_graphs(plain), with_graphs(with_megatron(plain)),
                           with_graphs(with_megatron(plain, true)), with_graphs(with_stowage(plain))});
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
        expect_equal_runs({plain, with_stowage(plain), with_graphs(with_megatron(plain))});
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
    for (const ExecutionRequest& request : {planned, with_graphs(planned)}) {
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
