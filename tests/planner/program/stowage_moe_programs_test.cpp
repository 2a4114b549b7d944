// Programs of stowage's own layers with experts: everything that is computed finds its operands.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::Call;
using layers::Phase;
using layers::testing::moe_gpt;
using layers::testing::moe_slice;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;
using Scope = std::vector<CudaGraphModule>;

const ModuleSet kExperts{Module::expert_fc1, Module::moe_act};
const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                     Module::mlp_norm,  Module::expert_fc1, Module::moe_act};

/// Skewed: the rank gets 1.3 times the mean, 2496 rows of which 6 experts get 416 each.
Scenario skewed_slice() {
    Scenario scenario = moe_slice();
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 1.3;
    return scenario;
}

/// Every expert takes 96 rows of a rank, 1.2 times the mean of 80.
Scenario padded(Scenario scenario) {
    scenario.model.moe_expert_capacity_factor = 1.2;
    scenario.model.moe_pad_expert_input_to_capacity = true;
    return scenario;
}

std::vector<std::pair<std::string, Scenario>> models() {
    return {{"all experts", moe_gpt()},
            {"slice", moe_slice()},
            {"skewed slice", skewed_slice()},
            {"padded", padded(moe_gpt())},
            {"padded slice", padded(moe_slice())}};
}

types::OffloadChoice choice_of(const ModuleSet& modules, bool freely, bool delayed = false) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
    choice.delay_until_cuda_graph = delayed;
    if (freely) choice.free = types::FreeOffload{.by_layer = {modules, modules, {}, modules}};
    return choice;
}

Lowered lowered(const Scenario& scenario, std::int64_t rank, const types::OffloadChoice& choice) {
    return lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                 Durations(scenario.hardware, scenario.parallel));
}

void expect_sound(const Scenario& scenario, const types::OffloadChoice& choice) {
    const bool graphs = scenario.cuda_graph.cuda_graph_impl != CudaGraphImpl::none;
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
        const Lowered program = lowered(scenario, rank, choice);
        if (program.chunk_mismatch) continue;  // where Megatron's manager stops
        EXPECT_FALSE(program.released_while_saved);
        EXPECT_FALSE(program.released_static);
        std::vector<RunStage> run{RunStage::setup, RunStage::record};
        if (graphs) run.insert(run.end(), {RunStage::eager, RunStage::capture});
        run.insert(run.end(), {RunStage::steady, RunStage::steady});
        const tests::WorkFacts work = tests::check_work(program.program, run);
        EXPECT_EQ(work.problems, std::vector<std::string>{});
        EXPECT_GT(work.checked, 0);
        EXPECT_EQ(work.launches > 0, graphs);
        EXPECT_EQ(tests::follow(program.program, tests::whole_run(program.program)).problems,
                  std::vector<std::string>{});
    }
}

Scenario selectively(Scenario scenario, const std::vector<RecomputeModule>& modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = modules;
    return scenario;
}

Scenario graphed(Scenario scenario, CudaGraphImpl impl, const Scope& scope) {
    scenario.cuda_graph.cuda_graph_impl = impl;
    scenario.cuda_graph.cuda_graph_modules = scope;
    return scenario;
}

std::size_t count(const StepProgram& program, Call call, Phase phase) {
    std::size_t found = 0;
    for (const auto& issued : tests::expand(program, RunStage::steady))
        if (issued.operation.kind == OperationKind::compute && issued.operation.phase == phase &&
            program.works[issued.operation.slot].call == call)
            ++found;
    return found;
}

std::size_t waits_of_the_host(const StepProgram& program) {
    const auto issued = tests::expand(program, RunStage::steady);
    return static_cast<std::size_t>(std::count_if(issued.begin(), issued.end(), [](const auto& one) {
        return one.operation.kind == OperationKind::stream_sync && one.operation.stream == Stream::main;
    }));
}

// ------------------------------------------------------------------------------------------------------------ operands

TEST(StowageMoePrograms, FindEveryOperandWhateverLeaves) {
    for (const auto& [name, scenario] : models())
        for (const ModuleSet& modules : {ModuleSet{}, kExperts, kAll, ModuleSet{Module::mlp_norm, Module::moe_act}})
            for (const bool freely : {false, true}) {
                SCOPED_TRACE(name + ", moves " + modules.joined(" ") + (freely ? ", freely" : ""));
                expect_sound(scenario, choice_of(modules, freely));
            }
}

TEST(StowageMoePrograms, FindEveryOperandUnderRecomputation) {
    using M = RecomputeModule;
    for (const auto& [name, scenario] : models())
        for (const std::vector<M>& modules :
             {std::vector{M::layernorm}, std::vector{M::shared_experts}, std::vector{M::moe_act},
              std::vector{M::core_attn, M::mlp, M::layernorm, M::shared_experts, M::moe_act}})
            for (const ModuleSet& moved : {ModuleSet{}, kAll}) {
                SCOPED_TRACE(name + ", recomputes " + std::to_string(modules.size()) + ", moves " + moved.joined(" "));
                expect_sound(selectively(scenario, modules), choice_of(moved, false));
            }
    Scenario fully = moe_gpt();
    fully.recompute = {types::RecomputeGranularity::full, types::RecomputeMethod::uniform, 2, {}};
    expect_sound(fully, {});
}

TEST(StowageMoePrograms, FindEveryOperandInPipelines) {
    for (const auto& [name, scenario] : models())
        for (const auto& [ranks, virtual_stages] : {std::pair{2, 1}, {4, 1}, {2, 2}})
            for (const bool freely : {false, true}) {
                SCOPED_TRACE(name + ", " + std::to_string(ranks) + " x " + std::to_string(virtual_stages));
                Scenario made = scenario;
                made.parallel.pipeline_model_parallel_size = ranks;
                made.parallel.num_virtual_stages_per_pipeline_rank = virtual_stages;
                expect_sound(made, choice_of(kExperts, freely));
            }
}

TEST(StowageMoePrograms, FindEveryOperandUnderGraphsOfTheRouter) {
    using G = CudaGraphModule;
    for (const auto& [name, scenario] : models())
        for (const CudaGraphImpl impl : {CudaGraphImpl::transformer_engine, CudaGraphImpl::local})
            for (const Scope& scope :
                 {Scope{G::attn}, Scope{G::attn, G::moe_router}, Scope{G::attn, G::moe_router, G::moe_preprocess}})
                for (const ModuleSet& modules : {ModuleSet{}, kExperts, ModuleSet{Module::core_attn, Module::moe_act}})
                    for (const bool freely : {false, true})
                        for (const bool delayed : {false, true})
                            for (const std::int64_t ranks : {1, 2}) {
                                SCOPED_TRACE(name + ", graph " + std::to_string(static_cast<int>(impl)) +
                                             ", scope of " + std::to_string(scope.size()) + ", moves " +
                                             modules.joined(" ") + (freely ? ", freely, " : ", ") +
                                             (delayed ? "delayed, " : "") + std::to_string(ranks) + " stages");
                                Scenario made = graphed(scenario, impl, scope);
                                made.parallel.pipeline_model_parallel_size = ranks;
                                expect_sound(made, choice_of(modules, freely, delayed));
                            }
}

TEST(StowageMoePrograms, FindEveryOperandUnderGraphsOfTheRouterAndRecomputation) {
    using M = RecomputeModule;
    using G = CudaGraphModule;
    for (const auto& [name, scenario] : models())
        for (const Scope& scope :
             {Scope{G::attn}, Scope{G::attn, G::moe_router}, Scope{G::attn, G::moe_router, G::moe_preprocess}}) {
            SCOPED_TRACE(name + ", scope of " + std::to_string(scope.size()));
            expect_sound(graphed(selectively(scenario, {M::layernorm, M::shared_experts, M::moe_act}),
                                 CudaGraphImpl::transformer_engine, scope),
                         choice_of(kExperts, false));
        }
}

TEST(StowageMoePrograms, AreCapturedWholeOnlyWithPaddedExperts) {
    for (const Scope& scope : {Scope{}, Scope{CudaGraphModule::attn, CudaGraphModule::moe}}) {
        const Scenario whole = graphed(moe_gpt(), CudaGraphImpl::transformer_engine, scope);
        EXPECT_THROW(layers::build_stage(whole, 0), types::UnsupportedError);
        expect_sound(graphed(padded(moe_gpt()), CudaGraphImpl::transformer_engine, scope), {});
    }
    EXPECT_THROW(layers::build_stage(graphed(moe_gpt(), CudaGraphImpl::full_iteration, {}), 0),
                 types::UnsupportedError);
    const Lowered iteration = lowered(graphed(padded(moe_gpt()), CudaGraphImpl::full_iteration, {}), 0, {});
    const tests::WorkFacts work =
        tests::check_work(iteration.program, {RunStage::setup, RunStage::record, RunStage::eager, RunStage::capture});
    EXPECT_EQ(work.problems, std::vector<std::string>{});
}

// -------------------------------------------------------------------------------------------------------------- counts

// Three layers with experts, four microbatches (a slice's eight), and one wait each.
TEST(StowageMoePrograms, WaitForTheCountsOfEveryLayer) {
    EXPECT_EQ(waits_of_the_host(lowered(moe_gpt(), 0, {}).program), 12U);
    EXPECT_EQ(waits_of_the_host(lowered(moe_slice(), 0, {}).program), 12U);
    EXPECT_EQ(waits_of_the_host(lowered(padded(moe_gpt()), 0, {}).program), 0U);
}

// The planned rows of an expert from one rank: 640 tokens x 3 over 24 experts are 80; 1.3 times that are 104.
TEST(StowageMoePrograms, SayHowManyRowsAnExpertMayGet) {
    const auto planned = [](const Scenario& scenario) {
        for (const Work& work : lowered(scenario, 0, {}).program.works)
            if (work.call == Call::counts_to_host) return work.sizes.depth;
        return std::int64_t{0};
    };
    EXPECT_EQ(planned(moe_gpt()), 80);
    EXPECT_EQ(planned(moe_slice()), 80);
    EXPECT_EQ(planned(skewed_slice()), 104);
    EXPECT_EQ(planned(padded(moe_gpt())), 0);
}

// Two grouped linears a layer; the activation is made again in its backward, whatever is recomputed. Only rows that
// leave for other ranks, or are padded, move: two exchanges forward, two backward.
TEST(StowageMoePrograms, ComputeWhatALayerNeedsOnce) {
    const StepProgram plain = lowered(moe_gpt(), 0, {}).program;
    EXPECT_EQ(count(plain, Call::grouped_linear_forward, Phase::forward), 24U);
    EXPECT_EQ(count(plain, Call::grouped_linear_weight_gradient, Phase::weight_gradient), 24U);
    EXPECT_EQ(count(plain, Call::weighted_activation_backward, Phase::backward), 12U);
    EXPECT_EQ(count(plain, Call::exchange_rows, Phase::forward), 0U);
    const StepProgram again = lowered(selectively(moe_gpt(), {RecomputeModule::moe_act}), 0, {}).program;
    EXPECT_EQ(count(again, Call::weighted_activation_forward, Phase::recompute), 0U);
    const StepProgram slice = lowered(moe_slice(), 0, {}).program;
    EXPECT_EQ(count(slice, Call::exchange_rows, Phase::forward), 24U);
    EXPECT_EQ(count(slice, Call::exchange_rows, Phase::backward), 24U);
}

}  // namespace
}  // namespace stowage::program
