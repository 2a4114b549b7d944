// Multi-latent attention on a device: the same bits under every policy, allocator and graph, and whatever runs again.

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
using types::RecomputeModule;
using types::Scenario;

const ModuleSet kAttention{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj};

class LatentGpu : public support::GpuTest {};

Scenario tiny() { return shipped_scenario("mla-tiny"); }

Scenario recomputing(std::vector<RecomputeModule> modules) {
    Scenario scenario = tiny();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

ExecutionRequest request_for(Scenario scenario) {
    return digested_request(std::move(scenario), 3, "stowage-mla-tiny-gemms.json");
}

ExecutionRequest with_megatron(ExecutionRequest request, const ModuleSet& modules = kAttention) {
    return under_megatron(std::move(request), modules);
}

ExecutionRequest with_stowage(ExecutionRequest request) { return under_stowage(std::move(request), kAttention); }

ExecutionRequest with_attention_graphs(ExecutionRequest request) {
    return with_graphs(std::move(request), CudaGraphImpl::transformer_engine, {CudaGraphModule::attn});
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
    expect_equal_runs({plain, with_attention_graphs(plain), with_attention_graphs(with_megatron(plain, inside))});
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
