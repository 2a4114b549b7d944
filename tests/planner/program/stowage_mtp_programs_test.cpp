// Programs of stowage's own layers with multi-token prediction, and with the whole part of experts recomputed:
// everything that is computed finds its operands.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/layers/stage.hpp"
#include "planner/program/choose_free.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::Call;
using layers::testing::latent_gpt;
using layers::testing::moe_gpt;
using layers::testing::moe_slice;
using layers::testing::predicting_gpt;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;
using Modules = std::vector<RecomputeModule>;
using Scope = std::vector<CudaGraphModule>;

const ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                     Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
const Modules kExperts{RecomputeModule::moe};
const Modules kExpertsAndNorms{RecomputeModule::moe, RecomputeModule::layernorm, RecomputeModule::core_attn};
const Modules kMost{RecomputeModule::moe, RecomputeModule::shared_experts, RecomputeModule::moe_act,
                    RecomputeModule::mlp};
const std::vector<RunStage> kEagerly{RunStage::setup, RunStage::record, RunStage::steady, RunStage::steady};
const std::vector<RunStage> kWithCapture{RunStage::setup,   RunStage::record, RunStage::eager,
                                         RunStage::capture, RunStage::steady, RunStage::steady};
const ModuleSet kInside{Module::core_attn, Module::attn_proj};

/// A dense model that predicts, one with experts, a slice of it, and one with multi-latent attention.
std::vector<std::pair<std::string, Scenario>> predicting() {
    std::vector<std::pair<std::string, Scenario>> models{{"dense", layers::testing::grouped_gpt()},
                                                         {"experts", moe_gpt()},
                                                         {"slice of experts", moe_slice()},
                                                         {"latent", latent_gpt()}};
    for (auto& [name, scenario] : models) scenario.model.mtp_num_layers = 1;
    return models;
}

Scenario staged(Scenario scenario, std::int64_t ranks, std::int64_t virtual_stages) {
    scenario.parallel.pipeline_model_parallel_size = ranks;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = virtual_stages;
    return scenario;
}

Scenario recomputing(Scenario scenario, Modules modules) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

Scenario graphed(Scenario scenario, CudaGraphImpl impl, Scope scope) {
    scenario.cuda_graph.cuda_graph_impl = impl;
    scenario.cuda_graph.cuda_graph_modules = std::move(scope);
    return scenario;
}

types::OffloadChoice choice_of(const ModuleSet& modules, bool freely) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
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
        const tests::WorkFacts work = tests::check_work(program.program, graphs ? kWithCapture : kEagerly);
        EXPECT_EQ(work.problems, std::vector<std::string>{});
        EXPECT_GT(work.checked, 0);
        EXPECT_EQ(tests::follow(program.program, tests::whole_run(program.program)).problems,
                  std::vector<std::string>{});
    }
}

std::size_t count(const StepProgram& program, Call call) {
    std::size_t found = 0;
    for (const auto& issued : tests::expand(program, RunStage::steady))
        if (issued.operation.kind == OperationKind::compute && program.works[issued.operation.slot].call == call)
            ++found;
    return found;
}

TEST(StowageMtpPrograms, FindEveryOperandWhateverLeaves) {
    for (const auto& [name, scenario] : predicting())
        for (const auto& [ranks, virtual_stages] : {std::pair{1, 1}, {2, 1}, {2, 2}})
            for (const ModuleSet& modules : {ModuleSet{}, kAll, kInside})
                for (const bool freely : {false, true}) {
                    SCOPED_TRACE(name + ", " + std::to_string(ranks) + " x " + std::to_string(virtual_stages) +
                                 ", moves " + modules.joined(" ") + (freely ? ", freely" : ""));
                    expect_sound(staged(scenario, ranks, virtual_stages), choice_of(modules, freely));
                }
}

TEST(StowageMtpPrograms, FindEveryOperandInGraphs) {
    using G = CudaGraphModule;
    for (const auto& [name, scenario] : predicting())
        for (const CudaGraphImpl impl : {CudaGraphImpl::transformer_engine, CudaGraphImpl::local})
            for (const Scope& scope : {Scope{G::attn}, Scope{G::attn, G::moe_router, G::moe_preprocess}})
                for (const ModuleSet& modules : {ModuleSet{}, kInside})
                    for (const bool freely : {false, true}) {
                        if (!scenario.model.has_experts() && scope.size() > 1) continue;
                        SCOPED_TRACE(name + ", graph " + std::to_string(static_cast<int>(impl)) + ", scope of " +
                                     std::to_string(scope.size()) + ", moves " + modules.joined(" ") +
                                     (freely ? ", freely" : ""));
                        expect_sound(graphed(scenario, impl, scope), choice_of(modules, freely));
                        expect_sound(graphed(staged(scenario, 2, 1), impl, scope), choice_of(modules, freely));
                    }
}

TEST(StowageMtpPrograms, AreCapturedWhole) {
    Scenario dense = layers::testing::grouped_gpt();
    dense.model.mtp_num_layers = 1;
    Scenario padded = predicting_gpt();
    padded.model.moe_expert_capacity_factor = 1.2;
    padded.model.moe_pad_expert_input_to_capacity = true;
    for (const Scenario& scenario : {dense, padded}) {
        const Lowered whole = lowered(graphed(scenario, CudaGraphImpl::full_iteration, {}), 0, {});
        EXPECT_EQ(
            tests::check_work(whole.program, {RunStage::setup, RunStage::record, RunStage::eager, RunStage::capture})
                .problems,
            std::vector<std::string>{});
        expect_sound(graphed(scenario, CudaGraphImpl::transformer_engine, {}), {});
    }
}

// Four microbatches: the table is looked up and added to twice in each; the layers are four and the prediction's.
TEST(StowageMtpPrograms, ComputeOneLayerMore) {
    const StepProgram program = lowered(predicting_gpt(), 0, {}).program;
    EXPECT_EQ(count(program, Call::embedding_forward), 8U);
    EXPECT_EQ(count(program, Call::embedding_backward), 8U);
    EXPECT_EQ(count(program, Call::attention_forward), 20U);
    EXPECT_EQ(count(program, Call::cross_entropy_forward), 4U);
    EXPECT_EQ(count(program, Call::join_columns), 8U);
    EXPECT_EQ(count(program, Call::split_columns), 4U);
}

// The last layer's backward follows its forward at once, unless the prediction comes between.
TEST(StowageMtpPrograms, LetTheLastLayersGroupsLeave) {
    const types::OffloadChoice choice = choice_of(kAll, false);
    const auto layers_that_give = [&](const Scenario& scenario) {
        return choose_free(layers::build_stage(scenario, 0), choice, 1.0).by_layer.size();
    };
    EXPECT_EQ(layers_that_give(moe_gpt()), 3U);
    EXPECT_EQ(layers_that_give(predicting_gpt()), 4U);
}

// --------------------------------------------------------------------------------------------- recomputation of `moe`

TEST(StowageMoeAgainPrograms, FindEveryOperand) {
    for (const Scenario& scenario : {moe_gpt(), moe_slice(), predicting_gpt()})
        for (const Modules& modules : {kExperts, kExpertsAndNorms, kMost})
            for (const ModuleSet& moved : {ModuleSet{}, kAll})
                for (const bool freely : {false, true}) {
                    SCOPED_TRACE(std::to_string(modules.size()) + " modules, moves " + moved.joined(" ") +
                                 (freely ? ", freely" : ""));
                    const Scenario made = recomputing(scenario, modules);
                    expect_sound(made, choice_of(moved, freely));
                    expect_sound(staged(made, 2, 2), choice_of(moved, freely));
                    expect_sound(graphed(made, CudaGraphImpl::transformer_engine, {CudaGraphModule::attn}),
                                 choice_of(kInside, freely));
                }
}

// Three layers of experts and four microbatches: fc1 runs twice, fc2 once.
TEST(StowageMoeAgainPrograms, RunTheFirstLinearOfExpertsTwice) {
    EXPECT_EQ(count(lowered(moe_gpt(), 0, {}).program, Call::grouped_linear_forward), 24U);
    EXPECT_EQ(count(lowered(recomputing(moe_gpt(), kExperts), 0, {}).program, Call::grouped_linear_forward), 36U);
}

}  // namespace
}  // namespace stowage::program
