// Programs of stowage's own layers: everything that is computed finds its operands.

#include <gtest/gtest.h>

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
using layers::Phase;
using layers::testing::bare_stack;
using layers::testing::grouped_gpt;
using layers::testing::latent_gpt;
using layers::testing::plain_gpt;
using types::Module;
using types::ModuleSet;
using types::RecomputeGranularity;
using types::RecomputeMethod;
using types::RecomputeModule;
using types::Scenario;

const std::vector<RunStage> kRun{RunStage::setup, RunStage::record, RunStage::steady};

/// `freely`: under policy stowage, every other layer's; otherwise as Megatron's manager does.
Lowered lowered(const Scenario& scenario, std::int64_t rank, const ModuleSet& modules = {}, bool freely = false) {
    types::OffloadChoice choice{.modules = modules, .min_offloaded_tensor_size = 1};
    if (freely) choice.free = types::FreeOffload{.by_layer = {modules, {}, modules, {}}};
    return lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                 Durations(scenario.hardware, scenario.parallel));
}

/// Nothing is wrong with the program of any rank.
void expect_sound(const Scenario& scenario, const ModuleSet& modules = {}, bool freely = false) {
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
        const Lowered program = lowered(scenario, rank, modules, freely);
        if (program.chunk_mismatch && !freely) continue;  // where Megatron's manager stops, few groups in a chunk
        EXPECT_FALSE(program.chunk_mismatch);
        EXPECT_FALSE(program.released_while_saved);
        const tests::WorkFacts work = tests::check_work(program.program, kRun);
        EXPECT_EQ(work.problems, std::vector<std::string>{});
        EXPECT_GT(work.checked, 0);
        const tests::ProgramFacts facts =
            tests::follow(program.program, {RunStage::record, RunStage::steady, RunStage::steady});
        EXPECT_EQ(facts.problems, std::vector<std::string>{});
        EXPECT_EQ(facts.unawaited_reloads, 0);
    }
}

Scenario with_head_norms(Scenario scenario) {
    scenario.model.qk_layernorm = true;
    return scenario;
}

std::vector<std::pair<std::string, Scenario>> models() {
    return {{"bare stack", bare_stack()},
            {"plain GPT", plain_gpt()},
            {"grouped GPT", grouped_gpt()},
            {"grouped GPT with norms of heads", with_head_norms(grouped_gpt())},
            {"latent attention", latent_gpt()}};
}

Scenario selectively(Scenario scenario, const std::vector<RecomputeModule>& modules) {
    scenario.recompute.recompute_granularity = RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = modules;
    return scenario;
}

Scenario fully(Scenario scenario, RecomputeMethod method, std::int64_t layers) {
    scenario.recompute = {RecomputeGranularity::full, method, layers, {}};
    return scenario;
}

Scenario in_stages(Scenario scenario, std::int64_t ranks, std::int64_t virtual_stages) {
    scenario.parallel.pipeline_model_parallel_size = ranks;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = virtual_stages;
    return scenario;
}

const std::vector<Module> kModules{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                                   Module::mlp_norm};

/// By the bits of `number`.
ModuleSet subset(unsigned number) {
    ModuleSet modules;
    for (std::size_t i = 0; i < kModules.size(); ++i)
        if ((number >> i & 1U) != 0) modules.insert(kModules[i]);
    return modules;
}

/// Calls of a steady step, by kind; copies left out.
std::size_t count(const StepProgram& program, Call call, Phase phase) {
    std::size_t found = 0;
    for (const Instance& instance : program.instances(RunStage::steady))
        for (const Operation& operation : program.bodies[index(instance.body)].operations)
            if (operation.kind == OperationKind::compute && operation.phase == phase &&
                program.works[operation.slot].call == call)
                ++found;
    return found;
}

TEST(StowagePrograms, FindEveryOperand) {
    for (const auto& [name, scenario] : models()) {
        SCOPED_TRACE(name);
        expect_sound(scenario);
    }
}

TEST(StowagePrograms, FindEveryOperandUnderRecomputation) {
    using M = RecomputeModule;
    for (const auto& [name, scenario] : models()) {
        SCOPED_TRACE(name);
        for (const std::vector<M>& modules : {std::vector{M::core_attn}, std::vector{M::mlp}, std::vector{M::layernorm},
                                              std::vector{M::core_attn, M::mlp, M::layernorm}})
            for (const ModuleSet& moved : {ModuleSet{}, subset(31)})
                expect_sound(selectively(scenario, modules), moved);
        expect_sound(fully(scenario, RecomputeMethod::uniform, 3));
        expect_sound(fully(scenario, RecomputeMethod::block, 2));
    }
}

// With and without a compressed query; the projections up run again alone, or with what is around them.
TEST(StowagePrograms, FindEveryOperandWhereProjectionsUpRunAgain) {
    using M = RecomputeModule;
    for (const std::int64_t query : {136, 0})
        for (const std::vector<M>& modules : {std::vector{M::mla_up_proj}, std::vector{M::mla_up_proj, M::core_attn},
                                              std::vector{M::mla_up_proj, M::layernorm},
                                              std::vector{M::mla_up_proj, M::layernorm, M::core_attn, M::mlp}})
            for (unsigned number = 0; number < 32; ++number)
                for (const bool freely : {false, true}) {
                    SCOPED_TRACE(std::to_string(query) + ", " + subset(number).joined(" "));
                    Scenario scenario = selectively(latent_gpt(), modules);
                    scenario.model.q_lora_rank = query;
                    expect_sound(scenario, subset(number), freely);
                }
}

TEST(StowagePrograms, FindEveryOperandInPipelines) {
    for (const auto& [name, scenario] : models()) {
        SCOPED_TRACE(name);
        for (const ModuleSet& moved : {ModuleSet{}, subset(31)})
            for (const bool freely : {false, true}) {
                expect_sound(in_stages(scenario, 2, 1), moved, freely);
                expect_sound(in_stages(scenario, 2, 2), moved, freely);
                expect_sound(in_stages(scenario, 4, 1), moved, freely);
            }
    }
}

TEST(StowagePrograms, FindEveryOperandWhateverModulesLeave) {
    for (unsigned number = 1; number < 32; ++number) {
        SCOPED_TRACE(subset(number).joined(", "));
        for (const bool freely : {false, true}) {
            expect_sound(bare_stack(), subset(number), freely);
            expect_sound(grouped_gpt(), subset(number), freely);
            expect_sound(latent_gpt(), subset(number), freely);
        }
    }
}

TEST(StowagePrograms, FindEveryOperandInTheGraphOfAnIteration) {
    for (auto [name, scenario] : models()) {
        SCOPED_TRACE(name);
        scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
        for (const ModuleSet& moved : {ModuleSet{}, subset(31)}) {
            const Lowered program = lowered(scenario, 0, moved);
            const tests::WorkFacts work = tests::check_work(
                program.program, {RunStage::setup, RunStage::record, RunStage::eager, RunStage::capture});
            EXPECT_EQ(work.problems, std::vector<std::string>{});
            EXPECT_EQ(tests::follow(program.program, tests::whole_run(program.program)).problems,
                      std::vector<std::string>{});
        }
    }
}

TEST(StowagePrograms, RunInGraphsOfLayers) {
    using types::CudaGraphModule;
    for (auto [name, scenario] : models())
        for (const auto impl : {types::CudaGraphImpl::transformer_engine, types::CudaGraphImpl::local})
            for (const std::vector<CudaGraphModule>& scope :
                 {std::vector<CudaGraphModule>{}, std::vector{CudaGraphModule::attn}, std::vector{CudaGraphModule::mlp},
                  std::vector{CudaGraphModule::attn, CudaGraphModule::mlp}})
                for (const ModuleSet& moved : {ModuleSet{}, ModuleSet{Module::core_attn, Module::attn_proj}}) {
                    SCOPED_TRACE(name + ", " + std::string(types::name_of(impl)) + ", " + moved.joined(" "));
                    scenario.cuda_graph = {impl, scope, 2};
                    const Lowered program = lowered(scenario, 0, moved);
                    EXPECT_FALSE(program.released_static);
                    const tests::WorkFacts work =
                        tests::check_work(program.program, {RunStage::setup, RunStage::record});
                    EXPECT_EQ(work.problems, std::vector<std::string>{});
                    const tests::ProgramFacts facts = tests::follow(program.program, tests::whole_run(program.program));
                    EXPECT_EQ(facts.problems, std::vector<std::string>{});
                    EXPECT_EQ(facts.launches > 0, true);
                }
}

// 4 layers x 4 microbatches, 4 linears each; recomputing the MLP runs fc1 again, not fc2.
TEST(StowagePrograms, RunAgainOnlyWhatTheBackwardNeeds) {
    const StepProgram plain = lowered(bare_stack(), 0).program;
    EXPECT_EQ(count(plain, Call::linear_forward, Phase::forward), 64U);
    EXPECT_EQ(count(plain, Call::linear_weight_gradient, Phase::weight_gradient), 64U);
    EXPECT_EQ(count(plain, Call::linear_forward, Phase::recompute), 0U);
    const StepProgram mlp = lowered(selectively(bare_stack(), {RecomputeModule::mlp}), 0).program;
    EXPECT_EQ(count(mlp, Call::linear_forward, Phase::recompute), 16U);
    EXPECT_EQ(count(mlp, Call::activation_forward, Phase::recompute), 0U);
    EXPECT_EQ(count(mlp, Call::norm_forward, Phase::recompute), 16U);
    const StepProgram attention = lowered(selectively(bare_stack(), {RecomputeModule::core_attn}), 0).program;
    EXPECT_EQ(count(attention, Call::attention_forward, Phase::recompute), 16U);
    EXPECT_EQ(count(attention, Call::linear_forward, Phase::recompute), 0U);
    const StepProgram all = lowered(fully(bare_stack(), RecomputeMethod::uniform, 1), 0).program;
    EXPECT_EQ(count(all, Call::linear_forward, Phase::recompute), 64U);
}

// Layers of all microbatches share their parameters; layer l's first one starts where layer l - 1's end.
TEST(StowagePrograms, PlaceParametersByLayer) {
    const StepProgram program = lowered(bare_stack(), 0).program;
    // input, 4 layers, head, and two frames of the neighbours for each microbatch
    constexpr std::size_t kStride = 8;
    ASSERT_GE(program.frame_parameters.size(), 4 * kStride);
    // norm 384, qkv 1008 x 384, projection 384 x 336, norm 384, fc1 2000 x 384, fc2 384 x 1000: multiples of 128 all
    constexpr std::int64_t kLayer = 384 + 1008 * 384 + 384 * 336 + 384 + 2000 * 384 + 384 * 1000;
    static_assert(kLayer % 128 == 0);
    for (std::size_t microbatch = 0; microbatch < 4; ++microbatch)
        for (std::size_t layer = 0; layer < 4; ++layer) {
            const std::uint32_t first = program.frame_parameters[microbatch * kStride + 1 + layer];
            EXPECT_EQ(program.parameter_places[first], static_cast<std::int64_t>(layer) * kLayer);
            EXPECT_EQ(program.parameter_places[first + 1] - program.parameter_places[first], 384);
        }
}

TEST(WorkChecker, FindsWhatAProgramGetsWrong) {
    const auto problems = [](auto&& change) {
        StepProgram program = lowered(bare_stack(), 0).program;
        for (Work& work : program.works) change(work);
        return tests::check_work(program, kRun).problems;
    };
    EXPECT_EQ(problems([](Work&) {}), std::vector<std::string>{});
    EXPECT_FALSE(problems([](Work& work) {  // the addend is the input, not the sum behind it
                     if (work.sizes.has_addend && work.call == Call::linear_forward) work.buffers[2].slot = 1;
                 })
                     .empty());
    EXPECT_FALSE(problems([](Work& work) {
                     if (work.call == Call::attention_backward) std::swap(work.buffers[0], work.buffers[1]);
                 }).empty());
    EXPECT_FALSE(problems([](Work& work) {
                     if (work.call == Call::norm_backward) ++work.buffers[1].slot;
                 }).empty());
}

}  // namespace
}  // namespace stowage::program
