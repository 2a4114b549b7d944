// Programs of one rank's slice: tensor parallelism and the optimizer. Everything that is computed finds its operands.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::testing::bare_stack;
using layers::testing::moe_slice;
using layers::testing::tensor_slice;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;

const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm};

Lowered lowered(const Scenario& scenario, std::int64_t rank, const ModuleSet& modules, bool freely) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
    if (freely) choice.free = types::FreeOffload{.by_layer = {modules, {}, modules, {}}};
    return lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                 Durations(scenario.hardware, scenario.parallel));
}

/// With `stages` of a run, on every pipeline rank, with everything offloaded and with nothing.
void expect_sound(const Scenario& scenario,
                  const std::vector<RunStage>& stages = {RunStage::setup, RunStage::record, RunStage::steady}) {
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank)
        for (const ModuleSet& modules : {ModuleSet{}, kAll})
            for (const bool freely : {false, true}) {
                const Lowered program = lowered(scenario, rank, modules, freely);
                if (program.chunk_mismatch && !freely) continue;
                EXPECT_FALSE(program.released_while_saved);
                const tests::WorkFacts work = tests::check_work(program.program, stages);
                EXPECT_EQ(work.problems, std::vector<std::string>{});
                EXPECT_GT(work.checked, 0);
            }
}

Scenario in_graphs(Scenario scenario) {
    scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
    scenario.cuda_graph.cuda_graph_modules = {CudaGraphModule::attn};
    scenario.cuda_graph.cuda_graph_warmup_steps = 3;
    return scenario;
}

Scenario recomputed(Scenario scenario, const std::vector<RecomputeModule>& modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = modules;
    return scenario;
}

TEST(StowageSlices, FindEveryOperandUnderTensorParallelism) {
    for (const std::int64_t ranks : {2, 8})
        for (const bool sequence : {false, true}) {
            SCOPED_TRACE(std::to_string(ranks) + (sequence ? " with shares of the sequence" : ""));
            expect_sound(tensor_slice(ranks, sequence));
            Scenario bare = tensor_slice(ranks, sequence);
            bare.model.vocab_size = 0;
            expect_sound(bare);
        }
}

TEST(StowageSlices, FindEveryOperandUnderRecomputation) {
    using M = RecomputeModule;
    for (const bool sequence : {false, true})
        for (const std::vector<M>& modules : {std::vector{M::core_attn}, std::vector{M::mlp}, std::vector{M::layernorm},
                                              std::vector{M::core_attn, M::mlp, M::layernorm}})
            expect_sound(recomputed(tensor_slice(2, sequence), modules));
}

TEST(StowageSlices, FindEveryOperandInPipelinesAndGraphs) {
    for (const bool sequence : {false, true}) {
        Scenario scenario = tensor_slice(8, sequence);
        scenario.parallel.pipeline_model_parallel_size = 2;
        expect_sound(scenario);
        scenario.parallel.num_virtual_stages_per_pipeline_rank = 2;
        expect_sound(scenario);
        expect_sound(in_graphs(scenario),
                     {RunStage::setup, RunStage::record, RunStage::eager, RunStage::capture, RunStage::steady});
    }
}

TEST(StowageSlices, KeepMemoryWhileCopiesRun) {
    for (const bool sequence : {false, true}) {
        const Lowered program = lowered(tensor_slice(8, sequence), 0, kAll, true);
        const tests::ProgramFacts facts =
            tests::follow(program.program, {RunStage::record, RunStage::steady, RunStage::steady});
        EXPECT_EQ(facts.problems, std::vector<std::string>{});
        EXPECT_EQ(facts.unawaited_reloads, 0);
    }
}

TEST(StowageSlices, FindEveryOperandOfTheOptimizer) {
    for (Scenario scenario : {bare_stack(), moe_slice(), tensor_slice(8, true)})
        for (const bool distributed : {false, true}) {
            scenario.optimizer.optimizer = types::OptimizerKind::adam;
            scenario.optimizer.use_distributed_optimizer = distributed;
            scenario.parallel.data_parallel_size = 4;
            scenario.batch.global_batch_size = 32;
            expect_sound(scenario);
        }
}

}  // namespace
}  // namespace stowage::program
