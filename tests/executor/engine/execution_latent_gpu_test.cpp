// Multi-latent attention on a device: the same bits under every policy, allocator and graph, and whatever runs again.

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
using types::RecomputeModule;
using types::Scenario;

const ModuleSet kAttention{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj};

class LatentGpu : public ::testing::Test {
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
    return reader::load_scenario(folder + "/scenarios/mla-tiny.yaml").scenario;
}

Scenario recomputing(std::vector<RecomputeModule> modules) {
    Scenario scenario = tiny();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

/// Three steps, each of whose gradients counts.
ExecutionRequest request_for(Scenario scenario) {
    ExecutionRequest request;
    request.scenario = std::move(scenario);
    request.choice.min_offloaded_tensor_size = 1024;
    request.policy = "none";
    request.steps = 3;
    request.warmup_steps = 1;
    request.digest_every_step = true;
    request.profile = false;
    request.gemm_table = ::testing::TempDir() + "stowage-mla-tiny-gemms.json";
    return request;
}

ExecutionRequest with_megatron(ExecutionRequest request, const ModuleSet& modules = kAttention) {
    request.policy = "megatron";
    request.choice.modules = modules;
    return request;
}

ExecutionRequest with_stowage(ExecutionRequest request) {
    request.policy = "stowage";
    request.choice.modules = kAttention;
    request.choice.free = program::choose_free(layers::build_stage(request.scenario, 0), request.choice, 1.0);
    request.allocator = AllocatorKind::planned;
    return request;
}

ExecutionRequest with_graphs(ExecutionRequest request) {
    request.scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
    request.scenario.cuda_graph.cuda_graph_modules = {CudaGraphModule::attn};
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
TEST_F(LatentGpu, LossOfAnUntrainedModelIsTheLogarithmOfItsVocabulary) {
    const recording::Measurement measured = run(request_for(tiny()));
    ASSERT_EQ(measured.losses.size(), 4U);  // one a microbatch
    for (const double loss : measured.losses) EXPECT_NEAR(loss, std::log(4096.0), 0.4);
}

TEST_F(LatentGpu, EveryPolicyGivesTheSameBits) {
    const ExecutionRequest plain = request_for(tiny());
    ExecutionRequest planned = plain;
    planned.allocator = AllocatorKind::planned;
    expect_equal_runs({plain, planned, with_megatron(plain), with_stowage(plain)});
}

// Graphs of layers hold what is inside them; the groups of attention's own tensors may leave through them.
TEST_F(LatentGpu, GraphsOfAttentionGiveTheSameBits) {
    const ExecutionRequest plain = request_for(tiny());
    const ModuleSet inside{Module::core_attn, Module::attn_proj};
    expect_equal_runs({plain, with_graphs(plain), with_graphs(with_megatron(plain, inside))});
}

TEST_F(LatentGpu, RecomputationGivesTheSameBits) {
    using M = RecomputeModule;
    std::vector<ExecutionRequest> requests{request_for(tiny())};
    for (const std::vector<M>& modules :
         {std::vector{M::mla_up_proj}, std::vector{M::mla_up_proj, M::core_attn},
          std::vector{M::mla_up_proj, M::layernorm}, std::vector{M::mla_up_proj, M::layernorm, M::core_attn}}) {
        requests.push_back(request_for(recomputing(modules)));
        requests.push_back(with_megatron(requests.back()));
    }
    expect_equal_runs(requests);
}

TEST_F(LatentGpu, AQueryThatIsNotCompressedGivesTheSameBits) {
    Scenario scenario = tiny();
    scenario.model.q_lora_rank = 0;
    Scenario again = recomputing({RecomputeModule::mla_up_proj});
    again.model.q_lora_rank = 0;
    const ExecutionRequest plain = request_for(scenario);
    expect_equal_runs({plain, with_stowage(plain), request_for(again), with_megatron(request_for(again))});
}

}  // namespace
}  // namespace stowage::executor
