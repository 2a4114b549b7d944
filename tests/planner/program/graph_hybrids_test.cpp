#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/support.hpp"
#include "planner/program/lowering.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/scenarios.hpp"
#include "tests/support/program_checker.hpp"

// Graphs of real layers: hybrid models, whose layers of one half stand next to each other, some captured and some not;
// and what the experts are given by a graph.

namespace stowage::program {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::Scenario;
using Scope = std::vector<CudaGraphModule>;

/// The first layers of a shipped model on `ranks` ranks.
Scenario first_layers(const std::string& file, std::size_t layers, std::int64_t ranks) {
    Scenario scenario = layers::testing::qwen3_30b_a3b();
    scenario.model =
        reader::read_model(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios" / "models" / (file + ".yaml"));
    types::Model& model = scenario.model;
    model.num_layers = static_cast<std::int64_t>(layers);
    model.mixers.resize(layers);
    model.feed_forward.resize(layers);
    if (!model.moe_layer_freq.empty()) model.moe_layer_freq.resize(layers);
    model.mtp_num_layers = 0;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 16, .seq_length = 2048};
    scenario.parallel.pipeline_model_parallel_size = ranks;
    scenario.parallel.data_parallel_size = 4;
    scenario.parallel.expert_model_parallel_size = 4;
    types::Node& node = scenario.hardware.node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, Nanoseconds{2000}};
    node.network = node.nvlink;
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {5e14};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    const types::CopyCurve curve({{Bytes{1 << 20}, Nanoseconds{20'000}}, {Bytes{2 << 20}, Nanoseconds{40'000}}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    return scenario;
}

const Scope kScopes[] = {
    {CudaGraphModule::attn},
    {CudaGraphModule::mamba},
    {CudaGraphModule::moe_router},
    {CudaGraphModule::attn, CudaGraphModule::mamba},
    {CudaGraphModule::mamba, CudaGraphModule::moe_router, CudaGraphModule::moe_preprocess},
    {CudaGraphModule::attn, CudaGraphModule::mamba, CudaGraphModule::moe_router},
};

void follow(const Scenario& scenario, const types::OffloadChoice& choice, int& graphs) {
    const Durations durations(scenario.hardware, scenario.parallel);
    for (std::int64_t rank = 0; rank < scenario.parallel.pipeline_model_parallel_size; ++rank) {
        const Lowered lowered = lower(layers::build_megatron_stage(scenario, rank), scenario.microbatches(), choice,
                                      scenario.rules, durations);
        if (lowered.chunk_mismatch) continue;
        std::vector<RunStage> run = tests::whole_run(lowered.program);
        const tests::ProgramFacts facts = tests::follow(lowered.program, run);
        for (const std::string& problem : facts.problems) ADD_FAILURE() << problem;
        run.pop_back();
        EXPECT_EQ(facts.offloaded - tests::follow(lowered.program, run).offloaded,
                  std::accumulate(lowered.counts.bytes.begin(), lowered.counts.bytes.end(), Bytes{}));
        graphs += static_cast<int>(lowered.program.graphs.size());
    }
}

TEST(GraphPrograms, OfHybridsKeepTheirBooks) {
    for (const auto& [file, layers] : {std::pair{"nemotron3-nano-30b-a3b", 8}, {"qwen3-next-80b-a3b", 8}})
        for (const std::int64_t ranks : {1, 2})
            for (const CudaGraphImpl impl : {CudaGraphImpl::transformer_engine, CudaGraphImpl::local}) {
                int graphs = 0;
                for (const Scope& scope : kScopes) {
                    Scenario scenario = first_layers(file, static_cast<std::size_t>(layers), ranks);
                    scenario.cuda_graph.cuda_graph_impl = impl;
                    scenario.cuda_graph.cuda_graph_modules = scope;
                    types::OffloadChoice choice{.modules = {Module::expert_fc1, Module::moe_act}};
                    if (impl == CudaGraphImpl::transformer_engine) choice.modules.insert(Module::core_attn);
                    scenario.offload.offload_modules = choice.modules;
                    std::string text =
                        std::string(file) + " on " + std::to_string(ranks) + ", " + std::string(types::name_of(impl));
                    for (const CudaGraphModule module : scope) text += " " + std::string(types::name_of(module));
                    SCOPED_TRACE(text);
                    ASSERT_TRUE(layers::unsupported_features(scenario).empty());
                    follow(scenario, choice, graphs);
                }
                EXPECT_GT(graphs, 0);
            }
}

/// The bodies of a stage that speak of graphs, by name.
std::vector<std::string> captured_layers(const Lowered& lowered) {
    std::vector<std::string> names;
    for (const Graph& graph : lowered.program.graphs) {
        const Instance& instance = lowered.program.instances(RunStage::capture)[graph.begin];
        names.push_back(lowered.program.bodies[index(instance.body)].name);
    }
    return names;
}

// Nemotron 3 Nano begins M E M E M * E M: `mamba` captures its four Mamba layers, `attn` the one of attention,
// `moe_router` the three of experts, each in both directions.
TEST(GraphPrograms, OfHybridsCaptureTheLayersThatAreListed) {
    Scenario scenario = first_layers("nemotron3-nano-30b-a3b", 8, 1);
    scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
    const Durations durations(scenario.hardware, scenario.parallel);
    std::size_t mamba = 0;
    std::size_t attention = 0;
    std::size_t experts = 0;
    for (std::int64_t layer = 0; layer < 8; ++layer) {
        mamba += scenario.model.mixer_of(layer) == types::Mixer::mamba ? 1 : 0;
        attention += scenario.model.mixer_of(layer) == types::Mixer::attention ? 1 : 0;
        experts += scenario.model.is_moe_layer(layer) ? 1 : 0;
    }
    ASSERT_EQ(mamba + attention + experts, 8U);
    for (const auto& [scope, layers] : {std::pair{Scope{CudaGraphModule::mamba}, mamba},
                                        {Scope{CudaGraphModule::attn}, attention},
                                        {Scope{CudaGraphModule::moe_router}, experts}}) {
        scenario.cuda_graph.cuda_graph_modules = scope;
        const Lowered lowered = lower(layers::build_megatron_stage(scenario, 0), 4, {}, scenario.rules, durations);
        EXPECT_EQ(captured_layers(lowered).size(), 2 * layers) << types::name_of(scope[0]);
    }
}

// What the permutation in the graph makes goes to the experts as it is only if nothing is made of it on the way: with
// more ranks the exchange makes another tensor, with several experts on a rank the sorting by expert does (Megatron's
// dispatch_postprocess), a fused dispatch permutes behind the graph. Padded tokens of one rank lie by expert as they
// are: their commit releases the graph's output by force. The rule (H4, after a report) speaks of every layer whose
// experts are on one rank.
TEST(GraphPrograms, ReleaseAGraphsOutputWhereTokensAreNeitherSentNorSorted) {
    using types::TokenDispatcher;
    const auto released = [](std::int64_t experts, TokenDispatcher dispatcher, bool preprocess, bool delayed,
                             bool padded = false) {
        Scenario scenario = layers::testing::small_moe();
        if (padded) scenario.model.moe_expert_capacity_factor = 1.0;
        scenario.model.moe_pad_expert_input_to_capacity = padded;
        scenario.hardware.node = first_layers("nemotron3-nano-30b-a3b", 1, 1).hardware.node;
        scenario.parallel.expert_model_parallel_size = experts;
        scenario.parallel.data_parallel_size = 4;
        scenario.parallel.moe_token_dispatcher_type = dispatcher;
        scenario.batch.global_batch_size = 16;
        scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
        scenario.cuda_graph.cuda_graph_modules = {CudaGraphModule::attn, CudaGraphModule::moe_router};
        if (preprocess) scenario.cuda_graph.cuda_graph_modules.push_back(CudaGraphModule::moe_preprocess);
        types::OffloadChoice choice{.modules = {Module::expert_fc1}};
        choice.delay_until_cuda_graph = delayed;
        scenario.offload.offload_modules = choice.modules;
        const Durations durations(scenario.hardware, scenario.parallel);
        return lower(layers::build_megatron_stage(scenario, 0), scenario.microbatches(), choice, scenario.rules,
                     durations)
            .released_static;
    };
    for (const bool delayed : {false, true}) {
        EXPECT_FALSE(released(1, TokenDispatcher::alltoall, true, delayed));
        EXPECT_FALSE(released(1, TokenDispatcher::alltoall, false, delayed));
        EXPECT_FALSE(released(2, TokenDispatcher::alltoall, true, delayed));
        EXPECT_FALSE(released(2, TokenDispatcher::flex, true, delayed));
        EXPECT_TRUE(released(1, TokenDispatcher::alltoall, true, delayed, true));
        EXPECT_FALSE(released(2, TokenDispatcher::alltoall, true, delayed, true));
    }
}

}  // namespace
}  // namespace stowage::program
