// Stowage's own layers under graphs of layers: everything captured and replayed finds its operands.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::Call;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::Scenario;
using Scope = std::vector<CudaGraphModule>;

const std::vector<RunStage> kRun{RunStage::setup,   RunStage::record, RunStage::eager,
                                 RunStage::capture, RunStage::steady, RunStage::steady};
const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm};
const std::vector<Scope> kScopes{{CudaGraphModule::attn}, {CudaGraphModule::mlp}, {}};

Scenario graphed(Scenario scenario, CudaGraphImpl impl, const Scope& scope) {
    scenario.cuda_graph.cuda_graph_impl = impl;
    scenario.cuda_graph.cuda_graph_modules = scope;
    return scenario;
}

Lowered lowered(const Scenario& scenario, std::int64_t rank, const types::OffloadChoice& choice) {
    return lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                 Durations(scenario.hardware, scenario.parallel));
}

types::OffloadChoice choice_of(const ModuleSet& modules, bool freely) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
    if (freely) choice.free = types::FreeOffload{.by_layer = {modules, modules, {}, modules}};
    return choice;
}

void expect_sound(const Scenario& scenario, const types::OffloadChoice& choice) {
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
        const Lowered program = lowered(scenario, rank, choice);
        if (program.chunk_mismatch) continue;
        const tests::WorkFacts work = tests::check_work(program.program, kRun);
        EXPECT_EQ(work.problems, std::vector<std::string>{});
        EXPECT_GT(work.launches, 0);
        EXPECT_EQ(tests::follow(program.program, tests::whole_run(program.program)).problems,
                  std::vector<std::string>{});
    }
}

TEST(StowageGraphs, FindEveryOperandInCaptureAndReplay) {
    using layers::testing::bare_stack;
    using layers::testing::grouped_gpt;
    using layers::testing::plain_gpt;
    const std::vector<std::pair<std::string, Scenario>> models{
        {"bare stack", bare_stack()}, {"plain GPT", plain_gpt()}, {"grouped GPT", grouped_gpt()}};
    for (const auto& [name, scenario] : models)
        for (const CudaGraphImpl impl : {CudaGraphImpl::transformer_engine, CudaGraphImpl::local})
            for (const Scope& scope : kScopes)
                for (const ModuleSet& modules : {ModuleSet{}, kAll, ModuleSet{Module::core_attn, Module::attn_proj}})
                    for (const bool freely : {false, true})
                        for (const std::int64_t ranks : {1, 2}) {
                            SCOPED_TRACE(name + ", graph " + std::to_string(static_cast<int>(impl)) + ", scope of " +
                                         std::to_string(scope.size()) + ", moves " + modules.joined() +
                                         (freely ? ", freely, " : ", ") + std::to_string(ranks) + " stages");
                            Scenario made = graphed(scenario, impl, scope);
                            made.parallel.pipeline_model_parallel_size = ranks;
                            expect_sound(made, choice_of(modules, freely));
                        }
}

/// Kernels that copy into graphs' buffers in a steady step, and the operands that captured work reads there.
std::pair<std::size_t, std::size_t> copies_and_reads(const StepProgram& program) {
    std::pair<std::size_t, std::size_t> found;
    for (const auto& issued : tests::expand(program, RunStage::steady)) {
        const Operation& operation = issued.operation;
        if (operation.kind == OperationKind::compute && program.works[operation.slot].call == Call::copy) ++found.first;
    }
    for (const auto& issued : tests::expand(program, RunStage::capture)) {
        if (issued.operation.kind != OperationKind::compute) continue;
        for (const BufferRef& buffer : program.works[issued.operation.slot].buffers)
            if (buffer.space == BufferRef::Space::graph_input || buffer.space == BufferRef::Space::graph_gradient)
                ++found.second;
    }
    return found;
}

// Whole layers, 4 layers, 4 microbatches: Transformer Engine's graphs take a copy of the input and of the gradient each
// time, 2 x 16. Local ones hand on: only the first layer's input and the last one's gradient, 2 x 4.
TEST(StowageGraphs, CopyOnlyWhatIsNotHandedOnInPlace) {
    const auto run = [](CudaGraphImpl impl) {
        return copies_and_reads(lowered(graphed(layers::testing::bare_stack(), impl, {}), 0, {}).program);
    };
    const auto transformer_engine = run(CudaGraphImpl::transformer_engine);
    const auto local = run(CudaGraphImpl::local);
    EXPECT_EQ(transformer_engine.first, 32U);
    EXPECT_EQ(local.first, 8U);
    // A layer reads its input in the norm, in the attention projection's sum and in the norm's backward; the gradient
    // in fc2's two GEMMs and in the norm's sum: 3 + 3, of all four layers or of the ends.
    EXPECT_EQ(transformer_engine.second, 24U);
    EXPECT_EQ(local.second, 6U);
}

TEST(StowageGraphs, LookForAGraphsMemoryInTheFirstMicrobatchOnOneStage) {
    const StepProgram program =
        lowered(graphed(layers::testing::bare_stack(), CudaGraphImpl::transformer_engine, {}), 0, {}).program;
    // input, 4 layers, head and two frames of the neighbours for each of 4 microbatches
    ASSERT_EQ(program.captured_frames.size(), 32U);
    for (std::uint32_t frame = 0; frame < 32; ++frame) EXPECT_EQ(program.captured_frames[frame], frame % 8);
}

TEST(StowageGraphs, GiveABackwardTheBuffersOfItsForward) {
    Scenario scenario = graphed(layers::testing::bare_stack(), CudaGraphImpl::transformer_engine, {});
    scenario.parallel.pipeline_model_parallel_size = 2;
    const StepProgram program = lowered(scenario, 0, {}).program;
    // Stage 0 of two: F0 F1 B0 F2 B1 F3 B2 B3 of two layers each. F2 takes F0's buffers, F3 those of F1; one gradient.
    const auto inputs = [&](std::size_t pass) {
        return std::pair(program.graphs[2 * pass].inputs_begin, program.graphs[2 * pass + 1].inputs_begin);
    };
    ASSERT_EQ(program.graphs.size(), 16U);
    const auto first = inputs(0);
    const auto second = inputs(1);
    const auto reversed = [](std::pair<std::uint32_t, std::uint32_t> pass) {
        return std::pair(pass.second, pass.first);
    };
    EXPECT_EQ(inputs(2), reversed(first));
    EXPECT_EQ(inputs(3), first);
    EXPECT_EQ(inputs(4), reversed(second));
    EXPECT_EQ(inputs(5), second);
    EXPECT_EQ(inputs(6), reversed(first));
    EXPECT_EQ(inputs(7), reversed(second));
    for (const std::size_t backward : {4U, 5U, 8U, 9U, 12U, 13U, 14U, 15U})
        EXPECT_EQ(program.graphs[backward].gradients_begin, program.graphs[4].gradients_begin);
}

// The checker's own check: each of these would compute on the wrong bytes.
TEST(StowageGraphs, AreFoundOutIfAnOperandIsWrong) {
    const Scenario scenario =
        graphed(layers::testing::bare_stack(), CudaGraphImpl::transformer_engine, {CudaGraphModule::attn});
    const StepProgram right = lowered(scenario, 0, {}).program;
    const auto problems = [&](auto&& change) {
        StepProgram program = right;
        change(program);
        return tests::check_work(program, kRun).problems.size();
    };
    EXPECT_EQ(problems([](StepProgram&) {}), 0U);
    EXPECT_GT(problems([](StepProgram& program) { program.captured_frames.clear(); }), 0U);
    EXPECT_GT(problems([](StepProgram& program) {  // nothing is copied into the graph's input
                  for (Work& work : program.works)
                      if (work.call == Call::copy) work.buffers[1] = work.buffers[0];
              }),
              0U);
    EXPECT_GT(problems([](StepProgram& program) {  // a captured kernel reads the eager tensor
                  for (Work& work : program.works)
                      for (BufferRef& buffer : work.buffers)
                          if (buffer.space == BufferRef::Space::graph_input && buffer.access == layers::Access::read)
                              buffer = {.slot = 0};
              }),
              0U);
    EXPECT_GT(problems([](StepProgram& program) {
                  for (Graph& graph : program.graphs) ++graph.gradients_begin;
              }),
              0U);
}

}  // namespace
}  // namespace stowage::program
