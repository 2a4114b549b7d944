// Stowage's own layers in fixed memory: every operand of every kernel and copy, followed through all streams.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/layers/stage.hpp"
#include "planner/memory/planned_memory.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/overlap_checker.hpp"

namespace stowage::memory {
namespace {

using program::RunStage;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::Scenario;

const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm};

program::Lowered lowered(const Scenario& scenario, std::int64_t rank, const ModuleSet& modules,
                         std::int64_t reload_ahead, std::int64_t join_after) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
    choice.free = types::FreeOffload{{modules, modules, {}, modules}, reload_ahead, join_after};
    return program::lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                          program::Durations(scenario.hardware, scenario.parallel));
}

void expect_sound(const Scenario& scenario) {
    for (const ModuleSet& modules : {kAll, ModuleSet{Module::core_attn}, ModuleSet{}})
        for (const std::int64_t ahead : {1, 4})
            for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
                SCOPED_TRACE(modules.joined() + ", " + std::to_string(ahead) + " ahead, rank " + std::to_string(rank));
                const program::Lowered program = lowered(scenario, rank, modules, ahead, ahead - 1);
                const PlannedMemory planned = plan_memory(program.program);
                for (const RunStage stage : {RunStage::capture, RunStage::steady}) {
                    const tests::Overlaps found =
                        tests::overlaps(program.program, stage, planned.offsets[static_cast<std::size_t>(stage)]);
                    EXPECT_EQ(found.problems, std::vector<std::string>{});
                    EXPECT_EQ(found.races, std::vector<std::string>{});
                    EXPECT_EQ(found.early_pinned_releases, 0);
                }
            }
}

TEST(PlannedStowage, HasNoRaceOnOneStage) { expect_sound(layers::testing::grouped_gpt()); }

TEST(PlannedStowage, HasNoRaceInAPipeline) {
    for (const std::int64_t virtual_stages : {1, 2}) {
        Scenario scenario = layers::testing::plain_gpt();
        scenario.parallel.pipeline_model_parallel_size = 2;
        scenario.parallel.num_virtual_stages_per_pipeline_rank = virtual_stages;
        expect_sound(scenario);
    }
}

TEST(PlannedStowage, HasNoRaceUnderGraphs) {
    for (const CudaGraphImpl impl :
         {CudaGraphImpl::transformer_engine, CudaGraphImpl::local, CudaGraphImpl::full_iteration})
        for (const std::int64_t ranks : {1, 2}) {
            Scenario scenario = layers::testing::bare_stack();
            scenario.parallel.pipeline_model_parallel_size = ranks;
            scenario.cuda_graph.cuda_graph_impl = impl;
            if (impl != CudaGraphImpl::full_iteration) scenario.cuda_graph.cuda_graph_modules = {CudaGraphModule::attn};
            expect_sound(scenario);
        }
}

// The checker's own check: without the main stream's waits for copies, memory is taken while it is read, and what was
// reloaded is read before it is there.
TEST(PlannedStowage, IsFoundOutIfAWaitIsMissing) {
    program::StepProgram program = lowered(layers::testing::bare_stack(), 0, kAll, 2, 1).program;
    const PlannedMemory planned = plan_memory(program);
    for (program::Body& body : program.bodies)
        std::erase_if(body.operations, [](const program::Operation& operation) {
            return operation.kind == program::OperationKind::event_wait && operation.stream == program::Stream::main;
        });
    const tests::Overlaps found =
        tests::overlaps(program, RunStage::steady, planned.offsets[static_cast<std::size_t>(RunStage::steady)]);
    EXPECT_FALSE(found.problems.empty());
    EXPECT_FALSE(found.races.empty());
    EXPECT_GT(found.early_pinned_releases, 0);
}

}  // namespace
}  // namespace stowage::memory
