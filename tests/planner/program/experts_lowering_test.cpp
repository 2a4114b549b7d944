#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/support.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/scenarios.hpp"
#include "tests/support/program_checker.hpp"

// Layers with experts under checkpoints, lowered with their groups moved: the program's own reference counts are the
// judge: no tensor is used after it is gone, none stays, and no forced release takes what a checkpoint reads again.

namespace stowage::program {
namespace {

using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;

const ModuleSet kModules{Module::mlp_norm, Module::expert_fc1, Module::moe_act, Module::core_attn, Module::attn_proj};

Scenario with_everything(const std::vector<RecomputeModule>& modules) {
    Scenario scenario = layers::testing::qwen3_30b_a3b();
    scenario.model.num_layers = 4;
    scenario.model.moe_shared_expert_intermediate_size = 1024;
    scenario.model.moe_shared_expert_gate = true;
    scenario.batch.global_batch_size = 8;
    scenario.parallel.data_parallel_size = 4;
    scenario.parallel.expert_model_parallel_size = 4;
    types::Node& node = scenario.hardware.node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, types::Nanoseconds{2000}};
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {5e14};
    node.device.gemm_fp8 = {1e15};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    constexpr std::int64_t kMiB = 1 << 20;
    const types::CopyCurve curve(
        {{types::Bytes{kMiB}, types::Nanoseconds{20'000}}, {types::Bytes{2 * kMiB}, types::Nanoseconds{40'000}}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = modules;
    return scenario;
}

std::vector<std::vector<RecomputeModule>> recomputations() {
    using M = RecomputeModule;
    return {{}, {M::moe_act}, {M::layernorm}, {M::shared_experts}, {M::layernorm, M::moe_act, M::shared_experts}};
}

TEST(ExpertsLowering, MovesGroupsAroundCheckpointsWithoutLosingATensor) {
    for (const auto& modules : recomputations())
        for (const bool overlapped : {false, true})
            for (const std::int64_t latent : {0, 512})
                for (const auto precision : {types::Precision::bf16, types::Precision::mxfp8}) {
                    Scenario scenario = with_everything(modules);
                    scenario.parallel.moe_shared_expert_overlap = overlapped;
                    scenario.model.moe_latent_size = latent;
                    scenario.precision = precision;
                    scenario.offload.offload_modules = kModules;
                    if (!layers::unsupported_features(scenario).empty()) continue;
                    const layers::StageLayers stage = layers::build_megatron_stage(scenario, 0);
                    const Durations durations(scenario.hardware, scenario.parallel);
                    const types::OffloadChoice choice{.modules = kModules};
                    const Lowered lowered = lower(stage, 2, choice, scenario.rules, durations);
                    EXPECT_FALSE(lowered.released_while_saved);
                    EXPECT_FALSE(lowered.chunk_mismatch);
                    const tests::ProgramFacts facts =
                        tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
                    for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
                    EXPECT_GT(facts.offloaded, types::Bytes{0});
                }
}

struct Totals {
    std::int64_t kernels = 0;
    std::int64_t exchanges = 0;
    types::Nanoseconds kernel_time{0};
    types::Bytes moved;
    friend bool operator==(const Totals&, const Totals&) = default;
};

Totals totals_of(const StepProgram& program) {
    Totals totals;
    for (const tests::IssuedOperation& issued : tests::expand(program, RunStage::steady)) {
        const Operation& operation = issued.operation;
        if (operation.kind == OperationKind::compute) {
            ++totals.kernels;
            totals.kernel_time += operation.duration;
        }
        if (operation.kind == OperationKind::collective && operation.stream == Stream::communication)
            ++totals.exchanges;
        if (operation.kind == OperationKind::copy && !is_read_by_host(operation)) totals.moved += operation.bytes;
    }
    return totals;
}

// Forwards beside backwards run the same kernels, exchanges and copies in another order; no tensor is lost on the way,
// with weight gradients in place and delayed, and with groups moved.
TEST(ExpertsLowering, PairsChunksWithoutLosingWorkOrATensor) {
    for (const ModuleSet modules : {ModuleSet{}, kModules}) {
        Scenario scenario = with_everything({RecomputeModule::layernorm, RecomputeModule::moe_act});
        scenario.model.moe_layer_freq = {false, true, true, false};
        layers::StageLayers stage = layers::build_megatron_stage(scenario, 0);
        const Durations durations(scenario.hardware, scenario.parallel);
        const types::OffloadChoice choice{.modules = modules};
        const Totals plain = totals_of(lower(stage, 4, choice, scenario.rules, durations).program);
        for (const bool delayed : {false, true}) {
            stage.paired_chunks = true;
            stage.delayed_weight_gradients = delayed;
            const Lowered lowered = lower(stage, 4, choice, scenario.rules, durations);
            EXPECT_FALSE(lowered.chunk_mismatch);
            const Totals paired = totals_of(lowered.program);
            EXPECT_EQ(paired.kernels, plain.kernels);
            EXPECT_EQ(paired.exchanges, plain.exchanges);
            EXPECT_EQ(paired.kernel_time, plain.kernel_time);
            EXPECT_EQ(paired.moved > types::Bytes{0}, !modules.empty());
            const tests::ProgramFacts facts =
                tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
            for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
        }
    }
}

types::Bytes replica_bytes(const StepProgram& program, RunStage stage) {
    types::Bytes bytes;
    for (const tests::IssuedOperation& issued : tests::expand(program, stage))
        if (issued.operation.kind == OperationKind::collective &&
            issued.operation.stream == Stream::gradient_communication)
            bytes += issued.operation.bytes;
    return bytes;
}

// Buckets of overlapped reduction and gathering carry the bytes of the whole buffers, on one rank, a plain pipeline and
// an interleaved one. Only the first rank of a plain pipeline has more than one bucket, of at least 40 million
// elements.
TEST(ExpertsLowering, ReducesAndGathersTheSameBytesInBuckets) {
    for (const std::int64_t stages : {1, 2})
        for (const std::int64_t depth : {1, 2}) {
            if (stages == 1 && depth > 1) continue;
            Scenario scenario = with_everything({});
            scenario.parallel.pipeline_model_parallel_size = stages;
            scenario.parallel.num_virtual_stages_per_pipeline_rank = depth;
            scenario.optimizer.use_distributed_optimizer = true;
            const Durations durations(scenario.hardware, scenario.parallel);
            for (std::int64_t rank = 0; rank < stages; ++rank) {
                SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(stages));
                scenario.optimizer.overlap_grad_reduce = false;
                scenario.optimizer.overlap_param_gather = false;
                const Lowered plain =
                    lower(layers::build_megatron_stage(scenario, rank), 4, {}, scenario.rules, durations);
                scenario.optimizer.overlap_grad_reduce = true;
                scenario.optimizer.overlap_param_gather = true;
                const layers::StageLayers stage = layers::build_megatron_stage(scenario, rank);
                const Lowered lowered = lower(stage, 4, {}, scenario.rules, durations);
                const double whole = static_cast<double>(replica_bytes(plain.program, RunStage::steady).count);
                const double buckets = static_cast<double>(replica_bytes(lowered.program, RunStage::steady).count);
                EXPECT_NEAR(buckets, whole, 1e-4 * whole);  // buckets end at multiples of 128 elements a rank
                EXPECT_GT(whole, 0);
                const tests::ProgramFacts facts = tests::follow(lowered.program, {RunStage::record, RunStage::steady});
                for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
                const bool many = rank == 0 && depth == 1;
                EXPECT_EQ(stage.chunks[0].reductions.size() > 1, many);
                EXPECT_TRUE(std::is_sorted(stage.chunks[0].gathers.begin(), stage.chunks[0].gathers.end(),
                                           [](const auto& l, const auto& r) { return l.frame < r.frame; }));
            }
        }
}

// A whole part recomputed has no group inside; the norm's and attention's still move.
TEST(ExpertsLowering, MovesNothingInsideACheckpointAroundTheWholePart) {
    const Scenario scenario = with_everything({RecomputeModule::moe});
    const layers::StageLayers stage = layers::build_megatron_stage(scenario, 0);
    const Durations durations(scenario.hardware, scenario.parallel);
    const ModuleSet outside{Module::mlp_norm, Module::core_attn, Module::attn_proj};
    const Lowered lowered = lower(stage, 2, {.modules = outside}, scenario.rules, durations);
    const tests::ProgramFacts facts =
        tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
    for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
    EXPECT_FALSE(lowered.released_while_saved);
    EXPECT_EQ(lowered.counts.groups[static_cast<std::size_t>(Module::expert_fc1)], 0);
    EXPECT_GT(lowered.counts.groups[static_cast<std::size_t>(Module::mlp_norm)], 0);
}

}  // namespace
}  // namespace stowage::program
