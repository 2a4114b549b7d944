// Steps of stand-ins: what is moved comes back bit for bit, whatever moves it and through whatever memory; and the step
// is as long as its kernels were asked to be.

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "planner/layers/stage.hpp"
#include "planner/program/choose_free.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/stand_ins.hpp"
#include "tests/executor/engine/execution_requests.hpp"

namespace stowage::executor {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;

constexpr ModuleSet kDense{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                           Module::mlp_norm};
constexpr ModuleSet kExperts{Module::attn_norm, Module::core_attn,  Module::attn_proj,
                             Module::mlp_norm,  Module::expert_fc1, Module::moe_act};

class StandInsGpu : public support::GpuTest {};

/// A small shipped model as Megatron runs it.
types::Scenario as_megatron(const std::string& name) {
    types::Scenario scenario = shipped_scenario(name);
    scenario.implementation = types::Implementation::megatron;
    scenario.optimizer.optimizer = types::OptimizerKind::adam;  // Megatron always has one
    return scenario;
}

/// Stand-ins of the request's scenario, as it is by now.
ExecutionRequest standing_in(ExecutionRequest request) {
    auto stage = std::make_shared<layers::StageLayers>(layers::build_stage(request.scenario, 0));
    const program::Durations durations(request.scenario.hardware, request.scenario.parallel);
    program::make_stand_ins(*stage, durations, request.scenario.hardware.node.device);
    request.stand_ins = std::move(stage);
    return request;
}

ExecutionRequest request_for(const std::string& name) {
    ExecutionRequest request = digested_request(as_megatron(name), 4, "unused.json");
    request.gemm_table.reset();
    return request;
}

ExecutionRequest spinning(ExecutionRequest request) {
    request.debug.spin_seed = 1;
    request.debug.poison = true;
    request.debug.longest_spin_us = 1000;
    return request;
}

void expect_offloading_keeps_the_bits(const std::string& name, const ModuleSet& modules) {
    const ExecutionRequest plain = request_for(name);
    const ExecutionRequest megatron = under_megatron(plain, modules);
    ExecutionRequest planned = plain;
    planned.allocator = AllocatorKind::planned;
    expect_equal_runs({standing_in(plain), standing_in(plain), standing_in(megatron), standing_in(planned),
                       standing_in(under_stowage(plain, modules)), standing_in(spinning(megatron)),
                       standing_in(spinning(under_stowage(plain, modules)))});
    const recording::Measurement measured = run(standing_in(megatron));
    EXPECT_EQ(measured.implementation, "stand-ins for megatron");
    EXPECT_GT(measured.pinned, types::Bytes{0}) << "something was moved";
    EXPECT_TRUE(measured.losses.empty());
    ExecutionRequest other = plain;
    other.seed = 2;
    EXPECT_NE(run(standing_in(other)).run_digest, measured.run_digest) << "other data";
}

TEST_F(StandInsGpu, OfADenseModelGiveTheSameBitsWithOffloadingAndWithout) {
    expect_offloading_keeps_the_bits("dense-tiny", kDense);
}

TEST_F(StandInsGpu, OfExpertsGiveTheSameBitsWithOffloadingAndWithout) {
    expect_offloading_keeps_the_bits("moe-tiny", kExperts);
}

TEST_F(StandInsGpu, WriteNothingBesideWhatTheProgramDeclares) {
    ExecutionRequest request = under_megatron(request_for("dense-tiny"), kDense);
    const std::uint64_t digest = run(standing_in(request)).run_digest;
    request.debug.fences = true;
    EXPECT_EQ(run(standing_in(request)).run_digest, digest);
}

TEST_F(StandInsGpu, GiveTheSameBitsAsOneGraph) {
    const ExecutionRequest plain = request_for("dense-tiny");
    const auto whole = [](const ExecutionRequest& request) {
        return standing_in(with_graphs(request, CudaGraphImpl::full_iteration, {}));
    };
    expect_equal_runs({standing_in(plain), whole(plain), whole(under_megatron(plain, kDense))});
}

// A graph's stand-ins take other operands than eager ones, so its bits are its own: what must agree is a run with
// offloading in it and one without.
TEST_F(StandInsGpu, InGraphsOfAttentionGiveTheSameBitsWithOffloadingAndWithout) {
    ExecutionRequest moved = under_megatron(request_for("dense-tiny"), {Module::core_attn, Module::attn_proj});
    const auto graphs = [](const ExecutionRequest& request) {
        return standing_in(with_graphs(request, CudaGraphImpl::transformer_engine, {CudaGraphModule::attn}));
    };
    expect_equal_runs({graphs(request_for("dense-tiny")), graphs(moved), graphs(spinning(moved))});
}

// All kernels of the step on the main stream, start to start: the profile holds both sums.
TEST_F(StandInsGpu, TakeAsLongAsTheirKernelsWereAskedTo) {
    ExecutionRequest request = request_for("dense-8x4096");
    request.scenario.model.vocab_size = 32'000;  // Megatron's layers have one
    request.digest_every_step = false;
    request.profile = true;
    const recording::Measurement measured = run(standing_in(request));
    ASSERT_TRUE(measured.profile.has_value());
    double asked = 0;
    double taken = 0;
    for (const recording::LabelTime& label : measured.profile->labels) {
        if (label.stream != "main" || label.predicted < label.operations * types::Nanoseconds{100'000}) continue;
        asked += static_cast<double>(label.predicted.count());
        taken += static_cast<double>(label.busy.count());
    }
    ASSERT_GT(asked, 0);
    RecordProperty("taken_over_asked", std::to_string(taken / asked));
    EXPECT_NEAR(taken / asked, 1.0, 0.05) << "kernels of 100 us and more";
}

}  // namespace
}  // namespace stowage::executor
