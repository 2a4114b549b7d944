// Random jobs of stowage's own layers, lowered and run by the interpreter on a machine that only writes down: whatever
// mix of recomputation, graphs, stages and offloading the scenario language allows, every operation finds its operands,
// and planned addresses share no byte that is still in use.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "executor/engine/interpreter.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/support.hpp"
#include "planner/memory/pinned_demand.hpp"
#include "planner/program/lowering.hpp"
#include "planner/rules/legality.hpp"
#include "tests/executor/engine/fake_machine.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/overlap_checker.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::executor {
namespace {

using program::RunStage;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::Scenario;

class Draw {
public:
    explicit Draw(std::uint64_t seed) : engine_(seed) {}
    std::int64_t between(std::int64_t least, std::int64_t most) {
        return least + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(most - least + 1));
    }
    bool once_in(std::int64_t times) { return between(1, times) == 1; }
    template <class T>
    T of(std::initializer_list<T> values) {
        return values.begin()[between(0, std::ssize(values) - 1)];
    }

private:
    std::mt19937_64 engine_;
};

ModuleSet modules(Draw& draw) {
    ModuleSet chosen;
    for (const Module module : {Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                                Module::mlp_norm, Module::expert_fc1, Module::moe_act})
        if (draw.once_in(2)) chosen.insert(module);
    return chosen;
}

void draw_model(Draw& draw, Scenario& scenario) {
    types::Model& model = scenario.model;
    const bool gated = draw.once_in(2);
    model.activation = gated ? types::Activation::swiglu : types::Activation::gelu;
    model.add_bias_linear = draw.once_in(3);
    model.normalization = draw.of({types::Normalization::RMSNorm, types::Normalization::LayerNorm});
    model.position_embedding_type = draw.of({types::PositionEmbedding::rope, types::PositionEmbedding::none});
    model.num_attention_heads = draw.of<std::int64_t>({1, 2, 6});
    model.num_query_groups = draw.of<std::int64_t>({1, model.num_attention_heads});
    model.kv_channels = draw.of<std::int64_t>({8, 16, 48, 128});
    model.hidden_size = draw.of<std::int64_t>({8, 264, 1024});
    model.ffn_hidden_size = draw.of<std::int64_t>({8, 1000});
    model.vocab_size = draw.of<std::int64_t>({0, 8, 1000});
}

void draw_layout(Draw& draw, Scenario& scenario) {
    types::ParallelLayout& layout = scenario.parallel;
    layout.pipeline_model_parallel_size = draw.of<std::int64_t>({1, 1, 2, 3, 4});
    if (layout.pipeline_model_parallel_size > 1)
        layout.num_virtual_stages_per_pipeline_rank = draw.of<std::int64_t>({1, 2});
    scenario.model.num_layers = layout.pipeline_model_parallel_size * layout.num_virtual_stages_per_pipeline_rank *
                                draw.of<std::int64_t>({1, 1, 2, 3});
    types::Batch& batch = scenario.batch;
    batch.micro_batch_size = draw.between(1, 3);
    batch.seq_length = draw.of<std::int64_t>({1, 7, 128, 512});
    batch.global_batch_size = batch.micro_batch_size * layout.pipeline_model_parallel_size * draw.between(1, 3);
}

/// In every second scenario; behind the layout.
void draw_experts(Draw& draw, Scenario& scenario) {
    if (draw.once_in(2)) return;
    types::Model& model = scenario.model;
    model.activation = types::Activation::swiglu;
    model.add_bias_linear = false;
    model.num_experts = draw.of<std::int64_t>({8, 24});
    model.moe_router_topk = draw.between(1, 3);
    model.moe_ffn_hidden_size = draw.of<std::int64_t>({8, 200});
    model.moe_shared_expert_intermediate_size = draw.of<std::int64_t>({0, 136});
    model.moe_pad_expert_input_to_capacity = draw.once_in(3);
    if (model.moe_pad_expert_input_to_capacity) model.moe_expert_capacity_factor = draw.of({0.7, 1.0, 1.5});
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) model.moe_layer_freq.push_back(!draw.once_in(3));
    const std::int64_t ranks = draw.of<std::int64_t>({1, 2, 8});
    scenario.parallel.expert_model_parallel_size = scenario.parallel.data_parallel_size = ranks;
    scenario.batch.global_batch_size *= ranks;
    if (!draw.once_in(3)) return;
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 1.3;
}

/// Behind the layers; in every fourth scenario.
void draw_prediction(Draw& draw, Scenario& scenario) { scenario.model.mtp_num_layers = draw.once_in(4) ? 1 : 0; }

void draw_run(Draw& draw, Scenario& scenario) {
    scenario.optimizer.grad_reduce_in_bf16 = draw.once_in(2);
    types::Recompute& recompute = scenario.recompute;
    if (draw.once_in(3)) {
        recompute.recompute_granularity = types::RecomputeGranularity::selective;
        for (const RecomputeModule module :
             {RecomputeModule::core_attn, RecomputeModule::layernorm, RecomputeModule::mlp,
              RecomputeModule::shared_experts, RecomputeModule::moe_act, RecomputeModule::moe})
            if (draw.once_in(2)) recompute.recompute_modules.push_back(module);
    } else if (draw.once_in(4)) {
        recompute.recompute_granularity = types::RecomputeGranularity::full;
        recompute.recompute_method = draw.of({types::RecomputeMethod::uniform, types::RecomputeMethod::block});
        recompute.recompute_num_layers = draw.between(1, 3);
    }
    types::CudaGraph& graph = scenario.cuda_graph;
    graph.cuda_graph_impl = draw.of({CudaGraphImpl::none, CudaGraphImpl::none, CudaGraphImpl::local,
                                     CudaGraphImpl::transformer_engine, CudaGraphImpl::full_iteration});
    if (graph.cuda_graph_impl == CudaGraphImpl::none || graph.cuda_graph_impl == CudaGraphImpl::full_iteration) return;
    for (const CudaGraphModule module : {CudaGraphModule::attn, CudaGraphModule::mlp, CudaGraphModule::moe_router,
                                         CudaGraphModule::moe_preprocess, CudaGraphModule::moe})
        if (draw.once_in(2)) graph.cuda_graph_modules.push_back(module);
}

/// The same job in FP8, its sizes rounded up to what that takes.
Scenario in_fp8(Scenario scenario) {
    const auto round_up = [](std::int64_t& size) {
        size = (size + layers::kFp8Multiple - 1) / layers::kFp8Multiple * layers::kFp8Multiple;
    };
    scenario.precision = types::Precision::fp8_tensorwise;
    scenario.hardware.node.device.gemm_fp8 = {8e14};
    for (std::int64_t* size : {&scenario.model.hidden_size, &scenario.model.ffn_hidden_size,
                               &scenario.model.kv_channels, &scenario.batch.seq_length})
        round_up(*size);
    return scenario;
}

types::OffloadChoice draw_choice(Draw& draw, const Scenario& scenario) {
    types::OffloadChoice choice{.modules = draw.once_in(4) ? ModuleSet{} : modules(draw),
                                .fraction = draw.of({1.0, 1.0, 0.5, 0.0}),
                                .min_offloaded_tensor_size = draw.of<std::int64_t>({0, 1, 4096})};
    if (draw.once_in(4)) choice.delta_bytes_across_pp_ranks = draw.of<std::int64_t>({1, 1 << 20});
    if (draw.once_in(4)) choice.max_inflight_offloads = draw.between(0, 2);
    if (choice.modules.empty() || draw.once_in(2)) return choice;
    choice.free = types::FreeOffload{.by_layer = {},
                                     .reload_ahead = draw.of<std::int64_t>({1, 2, 5, 1'000'000}),
                                     .join_after = draw.of<std::int64_t>({0, 1, 4, 1'000'000})};
    for (std::int64_t layer = 0; layer < scenario.model.num_layers; ++layer)
        choice.free->by_layer.push_back(draw.once_in(3) ? ModuleSet{} : modules(draw));
    return choice;
}

/// As the command line judges it: what may leave alone is Megatron's business only under its own policy.
bool may_run(Scenario scenario, types::OffloadChoice choice) {
    if (choice.free) choice.modules = {};
    choice.free.reset();
    scenario.offload.offload_modules = choice.modules;
    if (!layers::unsupported_features(scenario).empty()) return false;
    const std::vector<rules::Finding> findings = rules::check(scenario, choice);
    return std::none_of(findings.begin(), findings.end(),
                        [](const rules::Finding& finding) { return finding.severity == rules::Severity::illegal; });
}

/// Runs set-up and the stages over both kinds of memory; throws where an operation does not find what it names.
void run(const program::StepProgram& program) {
    for (const bool planned : {false, true}) {
        testing::FakeMachine machine;
        testing::EndlessMemory device;
        testing::IdleEvents events;
        std::unique_ptr<StepMemory> memory =
            planned ? planned_memory(memory::plan_memory(program), 1 << 20) : caching_memory({}, device, events);
        PinnedLayout layout(program, !planned);
        EXPECT_EQ(layout.size(), memory::pinned_arena_size(program, !planned));
        Interpreter interpreter(program, machine, *memory, std::move(layout), 0x10);
        interpreter.run(RunStage::setup);
        for (const RunStage stage :
             {RunStage::record, RunStage::eager, RunStage::capture, RunStage::steady, RunStage::steady}) {
            const bool before = stage == RunStage::record || stage == RunStage::eager;
            const bool captures = stage == RunStage::capture && !program.graphs.empty();
            EXPECT_TRUE(!captures || !program.instances(stage).empty());
            // A stage of the pipeline may have no layer of which the listed parts are captured.
            if ((planned && before) || program.instances(stage).empty()) continue;
            if (stage == RunStage::capture && !captures) continue;
            machine.calls.clear();
            interpreter.run(stage);
            EXPECT_FALSE(machine.calls.empty());
        }
        if (planned) {
            EXPECT_EQ(memory->counts().peak_allocated, memory::plan_memory(program).steady_peak);
        }
    }
}

void expect_no_race(const program::StepProgram& program) {
    const memory::PlannedMemory planned = memory::plan_memory(program);
    for (const RunStage stage : {RunStage::capture, RunStage::steady}) {
        const tests::Overlaps found = tests::overlaps(program, stage, planned.offsets[static_cast<std::size_t>(stage)]);
        EXPECT_EQ(found.problems, std::vector<std::string>{});
        EXPECT_EQ(found.races, std::vector<std::string>{});
        EXPECT_EQ(found.early_pinned_releases, 0);
    }
}

std::string text_of(const Scenario& scenario, const types::OffloadChoice& choice) {
    const types::Recompute& recompute = scenario.recompute;
    std::string text = std::to_string(scenario.model.num_layers) + " layers" +
                       (scenario.model.has_experts() ? " with experts" : "") +
                       (scenario.model.mtp_num_layers > 0 ? " and a prediction, " : ", ") +
                       std::to_string(scenario.parallel.pipeline_model_parallel_size) + " x " +
                       std::to_string(scenario.parallel.num_virtual_stages_per_pipeline_rank) + " stages, " +
                       std::to_string(scenario.microbatches()) + " microbatches; recompute " +
                       std::string(types::name_of(recompute.recompute_granularity));
    for (const RecomputeModule module : recompute.recompute_modules) text += " " + std::string(types::name_of(module));
    text += "; graphs " + std::string(types::name_of(scenario.cuda_graph.cuda_graph_impl));
    for (const CudaGraphModule module : scenario.cuda_graph.cuda_graph_modules)
        text += " " + std::string(types::name_of(module));
    text += "; offload " + choice.modules.joined(" ") + (choice.free ? ", free" : ", as Megatron");
    if (choice.free)
        text += " " + std::to_string(choice.free->reload_ahead) + " " + std::to_string(choice.free->join_after);
    return text;
}

/// Whether the job ran, and was not one that Megatron's manager stops.
bool expect_sound(const Scenario& scenario, const types::OffloadChoice& choice, std::int64_t rank) {
    const program::Lowered lowered =
        program::lower(layers::build_stage(scenario, rank), scenario.microbatches(), choice, scenario.rules,
                       program::Durations(scenario.hardware, scenario.parallel));
    if (lowered.chunk_mismatch || lowered.released_static || lowered.released_while_saved) {
        EXPECT_FALSE(choice.free) << "only Megatron's manager stops";
        return false;
    }
    EXPECT_EQ(tests::check_work(lowered.program, {RunStage::setup, RunStage::record}).problems,
              std::vector<std::string>{});
    EXPECT_EQ(tests::follow(lowered.program, tests::whole_run(lowered.program)).problems, std::vector<std::string>{});
    run(lowered.program);
    if (choice.free || choice.modules.empty()) expect_no_race(lowered.program);
    return true;
}

/// Jobs that ran and have something in them that few have.
struct Covered {
    int predictions = 0;
    int experts_again = 0;
    int interleaved_experts = 0;
    void add(const Scenario& scenario) {
        const types::Model& model = scenario.model;
        predictions += model.mtp_num_layers > 0 ? 1 : 0;
        experts_again += model.has_experts() && scenario.recompute.selects(RecomputeModule::moe) ? 1 : 0;
        interleaved_experts +=
            model.has_experts() && scenario.parallel.num_virtual_stages_per_pipeline_rank > 1 ? 1 : 0;
    }
};

TEST(RandomPrograms, FindEveryOperandAndRaceForNone) {
    constexpr int kRounds = 240;
    const std::uint64_t seed = tests::property_seed(20261130);
    int sound = 0;
    Covered covered;
    int sound_in_fp8 = 0;
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t own_seed = seed + static_cast<std::uint64_t>(round);
        Draw draw(own_seed);
        Scenario scenario = layers::testing::bare_stack();
        draw_model(draw, scenario);
        draw_layout(draw, scenario);
        draw_experts(draw, scenario);
        draw_prediction(draw, scenario);
        draw_run(draw, scenario);
        const types::OffloadChoice choice = draw_choice(draw, scenario);
        if (!may_run(scenario, choice)) continue;
        SCOPED_TRACE("STOWAGE_SEED=" + std::to_string(own_seed) + ": " + text_of(scenario, choice));
        const std::int64_t rank = draw.between(0, scenario.parallel.pipeline_model_parallel_size - 1);
        try {
            const bool in_bf16 = expect_sound(scenario, choice, rank);
            if (may_run(in_fp8(scenario), choice)) sound_in_fp8 += expect_sound(in_fp8(scenario), choice, rank) ? 1 : 0;
            if (!in_bf16) continue;
            ++sound;
            covered.add(scenario);
        } catch (const std::logic_error& error) {
            ADD_FAILURE() << error.what();
        }
    }
    std::cout << sound << " of " << kRounds << " drawn jobs ran, " << covered.predictions << " with a prediction, "
              << covered.experts_again << " with experts again, " << covered.interleaved_experts
              << " with experts in virtual stages, " << sound_in_fp8 << " in FP8\n";
    EXPECT_GT(std::min({covered.predictions, covered.experts_again, covered.interleaved_experts}), 0);
    EXPECT_GT(sound_in_fp8, kRounds / 20);
    EXPECT_GT(sound, kRounds / 4) << "most of what is drawn cannot run";
}

}  // namespace
}  // namespace stowage::executor
