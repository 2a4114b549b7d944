// Public reports about offloading and CUDA graphs, restated as small cases on the program and its simulation. Which
// report is which test, and which are not yet: field_cases.yaml.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "tests/planner/layers/scenarios.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/lower_stage.hpp"
#include "tests/support/manager_driver.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/simulation_options.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::tests {
namespace {

using namespace std::chrono_literals;
using program::Lowered;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using types::Bytes;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::literals::operator""_GiB;
using types::literals::operator""_MiB;

// ------------------------------------------------------------------------------------------------- groups and
// fractions

/// How often each group of a stage of a run went out and came back, by its frame.
std::map<std::uint32_t, std::pair<int, int>> pushes_and_pops(const Lowered& lowered, RunStage stage) {
    std::map<std::uint32_t, std::pair<int, int>> frames;
    for (const IssuedOperation& issued : expand(lowered.program, stage)) {
        if (issued.operation.kind == OperationKind::pinned_acquire) ++frames[issued.frame].first;
        if (issued.operation.kind != OperationKind::pinned_release) continue;
        EXPECT_EQ(frames[issued.frame].first, 1) << "came back before it went out";
        ++frames[issued.frame].second;
    }
    return frames;
}

// Two ranks of two virtual stages, one layer each, four microbatches, one module: eight groups go out in the first
// iteration, and each comes back as itself. Later the margin keeps B0's on either rank, and rank 1, where every B is
// next in backward when it runs, keeps those of B1 to B3.
TEST(GraphFieldCases, EveryGroupComesBackAsTheOneThatWentOut) {
    for (const auto& [rank, steady] : {std::pair{0, 7U}, std::pair{1, 4U}}) {
        const Lowered lowered = lower_stage(synthetic_stage(rank, 2, 1, {}, 2), 4, {.modules = {Module::core_attn}});
        EXPECT_FALSE(lowered.chunk_mismatch);
        EXPECT_EQ(pushes_and_pops(lowered, RunStage::record).size(), 8U);
        EXPECT_EQ(pushes_and_pops(lowered, RunStage::steady).size(), steady);
        for (const RunStage stage : {RunStage::record, RunStage::steady})
            for (const auto& [frame, times] : pushes_and_pops(lowered, stage))
                EXPECT_EQ(times, std::pair(1, 1)) << frame;
    }
}

// Of ten eligible groups (eleven layers, one stays by the margin) half leave, the first five in forward order: frames 1
// to 5. Every group's end asks for a reload, eleven times, and five are there to be asked for. Of three eligible groups
// trunc(3 * 0.5) = 1 stays: two leave.
TEST(GraphFieldCases, HalfOfTheGroupsAreTheFirstHalf) {
    const Lowered lowered =
        lower_stage(synthetic_stage(0, 1, 11), 1, {.modules = {Module::core_attn}, .fraction = 0.5});
    std::vector<std::uint32_t> frames;
    for (const auto& [frame, times] : pushes_and_pops(lowered, RunStage::steady)) frames.push_back(frame);
    EXPECT_EQ(frames, (std::vector<std::uint32_t>{1, 2, 3, 4, 5}));
    const std::vector<std::string> lines = text_of(lowered.program, RunStage::steady);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "h2d waits main"), 11);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "copy h2d 'reload core_attn'"), 5);
    const Lowered three = lower_stage(synthetic_stage(0, 1, 4), 1, {.modules = {Module::core_attn}, .fraction = 0.5});
    EXPECT_EQ(pushes_and_pops(three, RunStage::steady).size(), 2U);
}

// Groups of 448, 256, 128 and 64 MiB, fraction 0.5: two of four groups are 704 of 896 MiB. A chunk that no margin
// touches: the second of eight on an early rank.
TEST(GraphFieldCases, AShareOfGroupsIsNotAShareOfBytes) {
    const std::vector<std::pair<Module, Bytes>> sizes{{Module::expert_fc1, 448_MiB},
                                                      {Module::moe_act, 256_MiB},
                                                      {Module::core_attn, 128_MiB},
                                                      {Module::attn_proj, 64_MiB}};
    LayerHooks layer;
    for (const auto& [module, bytes] : sizes) {
        const LayerHooks hooks = flat({module}, bytes);
        layer.insert(layer.end(), hooks.begin(), hooks.end());
    }
    ManagerDriver driver(plain_pipeline(0, 4, 8, {layer}), {.modules = {}, .fraction = 0.5},
                         types::RuleSet::main_2026_08);
    driver.record();
    ASSERT_EQ(driver.flags(1), "1100");
    Bytes all;
    for (const auto& [module, bytes] : sizes) all += bytes;
    EXPECT_EQ(sizes[0].second + sizes[1].second, 704_MiB);
    EXPECT_EQ(all, 896_MiB);
}

// --------------------------------------------------------------------------------------------------- copies under way

// A limit of two copies, 10 ms each, beside layers of 3 ms: six of seven layers leave. Whenever a kernel starts, at
// most two copies are under way or waiting. Without the limit all six come to be: the last kernel of the forward runs
// at 21 ms, when the first two have ended.
std::ptrdiff_t most_under_way(std::optional<std::int64_t> limit) {
    const layers::StageLayers stage = synthetic_stage(0, 1, 7, {.kernel = 1ms});
    types::OffloadChoice choice{.modules = {Module::core_attn}};
    choice.max_inflight_offloads = limit;
    types::Hardware hardware;
    hardware.node = quiet_node(5ms);
    const types::ParallelLayout layout;
    const program::Durations durations(hardware, layout);
    const Lowered lowered = program::lower(stage, 1, choice, types::RuleSet::main_2026_08, durations);
    const simulator::Prediction prediction =
        simulator::simulate({&lowered.program}, hardware.node, traced(without_interference()));
    std::vector<types::SimTime> made;
    std::vector<types::SimTime> copied;
    std::vector<types::SimTime> starts;
    for (const program::TimelineEntry& entry : prediction.ranks[0].timeline.entries) {
        const program::Instance& instance = lowered.program.instances(RunStage::steady)[entry.instance];
        const Operation& operation = lowered.program.bodies[program::index(instance.body)].operations[entry.operation];
        if (operation.kind == OperationKind::copy && operation.direction == program::Direction::device_to_host)
            copied.push_back(entry.end);
        if (operation.kind != OperationKind::compute || operation.phase != layers::Phase::forward) continue;
        starts.push_back(entry.start);
        if (lowered.program.labels[operation.detail] == "core_attn") made.push_back(entry.end);
    }
    made.pop_back();  // the last layer's stays
    std::ptrdiff_t most = 0;
    for (const types::SimTime start : starts)
        most = std::max(most, std::count_if(made.begin(), made.end(), [&](auto end) { return end <= start; }) -
                                  std::count_if(copied.begin(), copied.end(), [&](auto end) { return end <= start; }));
    return most;
}

TEST(GraphFieldCases, NoMoreCopiesAreUnderWayThanTheLimitWhenAKernelStarts) {
    EXPECT_EQ(most_under_way(2), 2);
    EXPECT_EQ(most_under_way(1), 1);
    EXPECT_EQ(most_under_way(0), 0);
    EXPECT_GT(most_under_way(std::nullopt), 2);
}

// ------------------------------------------------------------------------------------------------------- graph memory

// Llama 3 70B on TP 2, PP 4, VP 5 with 32 microbatches, attention and MLP in graphs: 20 layers a rank, four a chunk.
// Every microbatch of every layer is captured, 20 * 32 = 640 graphs of forwards. Their inputs are shared between
// microbatches that are not in flight together: 2 (4 - r - 1) + 4 * 4 + 1 chunks: 23, 21, 19, 17.
TEST(GraphFieldCases, AGraphForEveryLayerAndMicrobatchButInputsForThoseInFlight) {
    types::Scenario scenario = layers::testing::llama3_70b();
    types::ParallelLayout& parallel = scenario.parallel;
    parallel.tensor_model_parallel_size = 2;
    parallel.pipeline_model_parallel_size = 4;
    parallel.num_virtual_stages_per_pipeline_rank = 5;
    parallel.data_parallel_size = 8;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 256, .seq_length = 8192};
    scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
    scenario.cuda_graph.cuda_graph_modules = {CudaGraphModule::attn, CudaGraphModule::mlp};
    types::Node& node = scenario.hardware.node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, types::Nanoseconds{2000}};
    node.network = node.nvlink;
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {5e14};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    node.copy.device_to_host = types::CopyCurve({{1_MiB, 20us}, {2_MiB, 40us}});  // the norm goes to the host
    const program::Durations durations(scenario.hardware, parallel);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const Lowered lowered =
            program::lower(layers::build_megatron_stage(scenario, rank), 32, {}, scenario.rules, durations);
        EXPECT_EQ(lowered.program.graphs.size(), 2U * 640);
        EXPECT_EQ(lowered.graph_inputs_without_reuse, 640);
        EXPECT_EQ(lowered.graph_inputs, 4 * (2 * (3 - rank) + 16 + 1));
    }
}

// Ten graphs, each with four inputs of 100 MiB and a workspace of 1 GiB: one pool holds one workspace, the inputs are
// no part of it: 4000 MiB and 1 GiB.
TEST(GraphFieldCases, OnePoolSharesWorkspacesAndNotInputs) {
    constexpr std::uint32_t kGraphs = 10;
    constexpr std::uint32_t kInputs = 4 * kGraphs;
    const Operation workspace{.kind = OperationKind::allocate, .slot = 0, .bytes = 1_GiB};
    Operation back = workspace;
    back.kind = OperationKind::free;
    program::StepProgram program = hand_graphs(std::vector<std::vector<Operation>>(kGraphs, {workspace, back}), {});
    program.frame_slots = {0, 1, 1 + kInputs, 1 + kInputs, 1 + kInputs};
    program::Body inputs{"inputs", {}};
    for (std::uint32_t i = 0; i < kInputs; ++i)
        inputs.operations.push_back(
            {.kind = OperationKind::allocate, .scope = program::kNeighbourFrame, .slot = i, .bytes = 100_MiB});
    program.sequence[static_cast<std::size_t>(RunStage::setup)] = {
        {static_cast<program::BodyId>(program.bodies.size()), 0, 0, 0}};
    program.bodies.push_back(std::move(inputs));
    const simulator::Prediction prediction = simulator::simulate({&program}, quiet_node());
    EXPECT_EQ(prediction.ranks[0].steady.private_pools, 1_GiB);
    // Beside them the seed and the offset that captures take random numbers from: two blocks of one small segment.
    EXPECT_EQ(prediction.ranks[0].steady.allocated_after, 4000_MiB + Bytes{2 * 512});
    EXPECT_EQ(prediction.ranks[0].steady.peak_reserved, 4000_MiB + 1_GiB + 2_MiB);
}

}  // namespace
}  // namespace stowage::tests
