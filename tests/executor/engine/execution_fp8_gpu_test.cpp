// Linears in FP8 on a device: the same bits under every policy, allocator and graph, and whatever runs again; losses
// near those of bf16, memory as predicted.

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "planner/search/job.hpp"
#include "tests/executor/engine/execution_requests.hpp"

namespace stowage::executor {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;

const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm};

class Fp8Gpu : public support::GpuTest {};

Scenario tiny() { return shipped_scenario("dense-tiny-fp8"); }

ExecutionRequest request_for(Scenario scenario) {
    return digested_request(std::move(scenario), 4, "stowage-fp8-tiny-gemms.json");
}

ExecutionRequest with_megatron(ExecutionRequest request, const ModuleSet& modules = kAll) {
    return under_megatron(std::move(request), modules);
}

ExecutionRequest with_stowage(ExecutionRequest request) { return under_stowage(std::move(request), kAll); }

ExecutionRequest as_one_graph(ExecutionRequest request) {
    return with_graphs(std::move(request), CudaGraphImpl::full_iteration, {});
}

ExecutionRequest with_layer_graphs(ExecutionRequest request, std::vector<CudaGraphModule> modules) {
    return with_graphs(std::move(request), CudaGraphImpl::transformer_engine, std::move(modules));
}

// Weights are small and tokens are random: every token is about equally likely, so the loss is ln(4096) = 8.32. Three
// bits behind the leading one move a logit by some percent of what is small beside that.
TEST_F(Fp8Gpu, LossIsNearThatOfBf16AndNotTheSame) {
    const recording::Measurement fp8 = run(request_for(tiny()));
    const recording::Measurement bf16 = run(request_for(shipped_scenario("dense-tiny")));
    ASSERT_EQ(fp8.losses.size(), bf16.losses.size());
    for (std::size_t i = 0; i < fp8.losses.size(); ++i) {
        EXPECT_NEAR(fp8.losses[i], bf16.losses[i], 0.05);
        EXPECT_NEAR(fp8.losses[i], std::log(4096.0), 0.4);
    }
    EXPECT_NE(fp8.run_digest, bf16.run_digest);
}

TEST_F(Fp8Gpu, EveryPolicyGivesTheSameBits) {
    const ExecutionRequest plain = request_for(tiny());
    ExecutionRequest planned = plain;
    planned.allocator = AllocatorKind::planned;
    std::vector<ExecutionRequest> requests{plain, plain, planned, with_megatron(plain), with_stowage(plain)};
    for (ExecutionRequest request : {with_megatron(plain), with_stowage(plain)}) {
        request.debug.poison = true;
        request.debug.spin_seed = 5;
        request.debug.longest_spin_us = 500;
        requests.push_back(request);
    }
    ExecutionRequest fenced = with_megatron(plain);
    fenced.debug.fences = true;
    requests.push_back(fenced);
    expect_equal_runs(requests);
}

TEST_F(Fp8Gpu, GraphsGiveTheSameBits) {
    const ExecutionRequest plain = request_for(tiny());
    expect_equal_runs(
        {plain, as_one_graph(plain), as_one_graph(with_megatron(plain)), as_one_graph(with_stowage(plain)),
         with_layer_graphs(plain, {}), with_layer_graphs(plain, {CudaGraphModule::attn}),
         with_layer_graphs(plain, {CudaGraphModule::mlp}),
         with_layer_graphs(with_megatron(plain, {Module::core_attn, Module::attn_proj}), {CudaGraphModule::attn})});
}

TEST_F(Fp8Gpu, RecomputationGivesTheSameBits) {
    std::vector<ExecutionRequest> requests{request_for(tiny())};
    for (const RecomputeModule module :
         {RecomputeModule::core_attn, RecomputeModule::mlp, RecomputeModule::layernorm}) {
        ExecutionRequest request = request_for(tiny());
        request.scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
        request.scenario.recompute.recompute_modules = {module};
        requests.push_back(request);
        requests.push_back(with_stowage(request));
    }
    ExecutionRequest whole = request_for(tiny());
    whole.scenario.offload.offload_modules = ModuleSet{};
    whole.scenario.recompute.recompute_granularity = types::RecomputeGranularity::full;
    whole.scenario.recompute.recompute_method = types::RecomputeMethod::uniform;
    whole.scenario.recompute.recompute_num_layers = 2;
    requests.push_back(whole);
    expect_equal_runs(requests);
}

/// LayerNorm, GELU, biases, two sequences in a microbatch, bf16 gradients, AdamW: weights change from step to step.
TEST_F(Fp8Gpu, TrainingOfAnotherKindOfModelHasTheSameBits) {
    Scenario scenario = tiny();
    scenario.model.normalization = types::Normalization::LayerNorm;
    scenario.model.activation = types::Activation::gelu;
    scenario.model.add_bias_linear = true;
    scenario.batch.micro_batch_size = 2;
    scenario.batch.global_batch_size = 8;
    scenario.optimizer.grad_reduce_in_bf16 = true;
    scenario.optimizer.optimizer = types::OptimizerKind::adam;
    const ExecutionRequest plain = request_for(scenario);
    const recording::Measurement measured = run(plain);
    for (const double loss : measured.losses) EXPECT_NEAR(loss, std::log(4096.0), 0.4);
    expect_equal_runs({plain, with_megatron(plain), with_stowage(plain), as_one_graph(with_stowage(plain))});
}

TEST_F(Fp8Gpu, AStageOfAPipelineHasTheSameBitsUnderEveryPolicy) {
    Scenario scenario = tiny();
    scenario.parallel.pipeline_model_parallel_size = 2;
    for (const std::int64_t rank : {0, 1}) {
        ExecutionRequest plain = request_for(scenario);
        plain.pipeline_rank = rank;
        expect_equal_runs({plain, with_megatron(plain)});
    }
}

// The planner's copy of the allocator, on the same program.
TEST_F(Fp8Gpu, TakesTheMemoryThatIsPredicted) {
    ExecutionRequest request = request_for(tiny());
    request.digest_every_step = false;
    const search::Job job = search::prepare(request.scenario);
    request.caching_config = job.allocator;
    const recording::Measurement measured = run(request);
    const search::Outcome predicted = search::evaluate(job, request.choice);
    EXPECT_EQ(measured.steady_peak_allocated, predicted.ranks.at(0).steady_peak_allocated);
    EXPECT_EQ(measured.steady_peak_reserved, predicted.ranks.at(0).steady_peak_reserved);
}

}  // namespace
}  // namespace stowage::executor
