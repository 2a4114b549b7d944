// Graphs in virtual time, on programs written by hand: when a layer's graph starts, when the main stream goes on, what
// the copies in it wait for, and what a launch costs the host. Then whole iterations as one graph, and random jobs.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "tests/support/graph_jobs.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/simulation_options.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using program::Direction;
using program::Operation;
using tests::hand_graphs;
using tests::quiet_node;
using types::Nanoseconds;
using types::literals::operator""_B;
using types::literals::operator""_MiB;

const SimulationOptions kTraced = tests::traced(tests::without_interference());

// ------------------------------------------------------------------------------------------------- operations by hand

Operation kernel(Nanoseconds length, Stream stream = Stream::main) {
    return {.kind = OperationKind::compute, .stream = stream, .duration = length};
}
Operation copy_out(Nanoseconds length) {
    return {.kind = OperationKind::copy,
            .stream = Stream::d2h,
            .direction = Direction::device_to_host,
            .bytes = 1_MiB,
            .duration = length};
}
Operation copy_in(Nanoseconds length) {
    return {.kind = OperationKind::copy,
            .stream = Stream::h2d,
            .direction = Direction::host_to_device,
            .bytes = 1_MiB,
            .duration = length};
}
Operation waits(Stream stream, Stream other) {
    return {.kind = OperationKind::stream_wait, .stream = stream, .other = other};
}
Operation records_external() { return {.kind = OperationKind::event_record, .scope = program::kGraphScope}; }
Operation waits_external() { return {.kind = OperationKind::event_wait, .scope = program::kGraphScope}; }
Operation launch(std::uint32_t graph, Stream stream = Stream::graph, layers::Phase phase = layers::Phase::forward) {
    return {.kind = OperationKind::graph_launch, .stream = stream, .phase = phase, .slot = graph};
}

/// A layer's forward graph with one offloaded group: compute, its copy, the external event, the joined tail.
std::vector<Operation> offloading_graph(Nanoseconds compute, Nanoseconds copy) {
    return {kernel(compute), waits(Stream::d2h, Stream::main), copy_out(copy), records_external(),
            waits(Stream::main, Stream::d2h)};
}

/// A captured layer's replay: three operations for each of `graphs`, then what is given.
std::vector<Operation> replays(std::uint32_t graph, std::vector<Operation> then = {}) {
    std::vector<Operation> operations{waits(Stream::graph, Stream::main), launch(graph), waits_external()};
    operations.insert(operations.end(), then.begin(), then.end());
    return operations;
}

std::vector<Operation> joined(std::vector<Operation> first, const std::vector<Operation>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

struct Piece {
    Stream stream;
    Nanoseconds start;
    Nanoseconds end;
    friend bool operator==(const Piece&, const Piece&) = default;
};
void PrintTo(const Piece& piece, std::ostream* out) {
    *out << name_of(piece.stream) << " " << piece.start.count() << "-" << piece.end.count();
}

/// What ran, by the launching operation and the place inside it.
std::vector<Piece> timeline(const program::StepProgram& program, const types::Node& node = quiet_node()) {
    const Prediction prediction = simulate({&program}, node, kTraced);
    std::vector<program::TimelineEntry> entries = prediction.ranks[0].timeline.entries;
    std::stable_sort(entries.begin(), entries.end(), [](const auto& left, const auto& right) {
        return std::pair(left.instance, left.operation) < std::pair(right.instance, right.operation);
    });
    std::vector<Piece> pieces;
    for (const auto& entry : entries)
        pieces.push_back({entry.stream, entry.start.time_since_epoch(), entry.end.time_since_epoch()});
    return pieces;
}

// ---------------------------------------------------------------------------------------------------- a layer's replay

// start = max(main, graph stream idle); the event comes at start + compute, and main goes on there; the graph stream is
// idle at max(event, end of copies). Kernel of 100 us, copy of 300: main resumes at 100 and runs eager work of 50
// beside the copy, which ends at 400; the next layer is issued at 150 and starts at 400.
TEST(GraphReplay, LetsMainGoOnAtTheEventAndTheNextLayerAtTheEndOfTheCopies) {
    const auto program = hand_graphs({offloading_graph(100us, 300us), offloading_graph(100us, 20us)},
                                     joined(replays(0, {kernel(50us)}), replays(1, {kernel(10us)})));
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::graph, 0us, 100us},
                                                     {Stream::graph_d2h, 100us, 400us},
                                                     {Stream::main, 100us, 150us},
                                                     {Stream::graph, 400us, 500us},
                                                     {Stream::graph_d2h, 500us, 520us},
                                                     {Stream::main, 500us, 510us}}));
}

// The other branch of the maximum: copies of 20 us end at 120, eager work at 250, and the next layer starts there.
TEST(GraphReplay, StartsWhenMainIsThereIfTheCopiesEndedBefore) {
    const auto program = hand_graphs({offloading_graph(100us, 20us)}, joined(replays(0, {kernel(150us)}), replays(0)));
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::graph, 0us, 100us},
                                                     {Stream::graph_d2h, 100us, 120us},
                                                     {Stream::main, 100us, 250us},
                                                     {Stream::graph, 250us, 350us},
                                                     {Stream::graph_d2h, 350us, 370us}}));
}

// A graph that nothing joins, or that holds no copies, is launched on the main stream: what follows waits for it all.
TEST(GraphReplay, OfAGraphOnTheMainStreamHoldsUpWhatFollows) {
    const auto program =
        hand_graphs({{kernel(100us), kernel(20us)}}, {launch(0, Stream::main), kernel(50us), launch(0, Stream::main)});
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::main, 0us, 100us},
                                                     {Stream::main, 100us, 120us},
                                                     {Stream::main, 120us, 170us},
                                                     {Stream::main, 170us, 270us},
                                                     {Stream::main, 270us, 290us}}));
}

// Backward: the end of a group, 40 us into the graph, lets a reload of 200 start; compute ends at 100, where main goes
// on; the reload ends at 240, and the graph that reads what it brought starts there.
TEST(GraphReplay, FinishesAReloadBeforeTheNextGraphStarts) {
    const std::vector<Operation> backward{kernel(40us),       waits(Stream::h2d, Stream::main),
                                          copy_in(200us),     kernel(60us),
                                          records_external(), waits(Stream::main, Stream::h2d)};
    const auto program =
        hand_graphs({backward, {kernel(30us), records_external()}}, joined(replays(0, {kernel(70us)}), replays(1)));
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::graph, 0us, 40us},
                                                     {Stream::graph_h2d, 40us, 240us},
                                                     {Stream::graph, 40us, 100us},
                                                     {Stream::main, 100us, 170us},
                                                     {Stream::graph, 240us, 270us}}));
}

// An eager copy is no part of the graph's queue, but there is one engine: ready at 150 us, it starts when the graph's
// copy ends.
TEST(GraphReplay, SharesTheEngineWithEagerCopies) {
    const auto program = hand_graphs({offloading_graph(100us, 300us)},
                                     replays(0, {kernel(50us), waits(Stream::d2h, Stream::main), copy_out(100us)}));
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::graph, 0us, 100us},
                                                     {Stream::graph_d2h, 100us, 400us},
                                                     {Stream::main, 100us, 150us},
                                                     {Stream::d2h, 400us, 500us}}));
}

// Beside its kernels a graph's copy keeps a share of its rate: 80 us at 0.8 are 100. The eager copy behind it keeps
// all.
TEST(GraphReplay, CopiesAtTheRateThatIsLeftBesideTheGraphsKernels) {
    types::Node node = quiet_node();
    node.graph.copy_device_to_host = 0.8;
    const auto program = hand_graphs({offloading_graph(100us, 80us)},
                                     replays(0, {kernel(50us), waits(Stream::d2h, Stream::main), copy_out(80us)}));
    EXPECT_EQ(timeline(program, node), (std::vector<Piece>{{Stream::graph, 0us, 100us},
                                                           {Stream::graph_d2h, 100us, 200us},
                                                           {Stream::main, 100us, 150us},
                                                           {Stream::d2h, 200us, 280us}}));
}

// The copies of one graph are a queue of their own, as on the stream they were captured on.
TEST(GraphReplay, KeepsTheCopiesOfAGraphInOrder) {
    const auto program = hand_graphs(
        {{kernel(10us), waits(Stream::d2h, Stream::main), copy_out(50us), kernel(10us),
          waits(Stream::d2h, Stream::main), copy_out(50us), records_external(), waits(Stream::main, Stream::d2h)}},
        replays(0));
    EXPECT_EQ(timeline(program), (std::vector<Piece>{{Stream::graph, 0us, 10us},
                                                     {Stream::graph_d2h, 10us, 60us},
                                                     {Stream::graph, 10us, 20us},
                                                     {Stream::graph_d2h, 60us, 110us}}));
}

// ------------------------------------------------------------------------------------------------------------ its cost

types::Node costly() {
    types::Node node = quiet_node();
    node.host.kernel_launch = 4us;
    node.graph.launch = 10us;
    node.graph.launch_per_node = 1us;
    node.graph.launch_per_branch = 5us;
    node.graph.framework_forward = 7us;
    node.graph.framework_backward = 20us;
    node.graph.instantiate_per_node = 100us;
    return node;
}

// Two kernels, a copy and the external event are four nodes on two branches: 10 + 4 + 5 = 19 us, and 7 more for a
// forward, 20 more for a backward: the launches return at 26 and at 65. Eagerly the kernels alone would have taken 8.
TEST(GraphReplay, CostsTheHostALaunchAndAShareForEachNodeAndBranch) {
    std::vector<Operation> graph = offloading_graph(1us, 1us);
    graph.insert(graph.begin(), kernel(1us));
    const auto program = hand_graphs({graph}, {launch(0), launch(0, Stream::graph, layers::Phase::backward)});
    EXPECT_EQ(program.graphs[0].nodes, 4U);
    EXPECT_EQ(program.graphs[0].branches, 2U);
    const std::vector<Piece> pieces = timeline(program, costly());
    ASSERT_EQ(pieces.size(), 6U);
    EXPECT_EQ(pieces[0], (Piece{Stream::graph, 26us, 27us}));
    EXPECT_EQ(pieces[3], (Piece{Stream::graph, 65us, 66us}));
}

// The capture issues two kernels of 4 us each and a copy for nothing, and instantiates four nodes of 100 us; nothing
// runs on the device.
TEST(GraphReplay, CapturesOnTheHostAlone) {
    std::vector<Operation> graph = offloading_graph(1000us, 1000us);
    graph.insert(graph.begin(), kernel(1000us));
    const auto program = hand_graphs({graph}, {launch(0)});
    const Prediction prediction = simulate({&program}, costly(), kTraced);
    EXPECT_EQ(prediction.capture_time, 2 * 4us + 4 * 100us);
    EXPECT_EQ(prediction.ranks[0].capture.copied[0], 0_B);
    EXPECT_EQ(prediction.ranks[0].steady.copied[0], 1_MiB);
    EXPECT_EQ(prediction.ranks[0].steady.graph_launches, 1);
}

// A kernel's measured or estimated time holds 3 us of fixed cost; between the nodes of a graph it is 1.
TEST(GraphReplay, RunsKernelNodesWithTheirOwnOverhead) {
    types::Node node = quiet_node();
    node.device.kernel_overhead = 3us;
    const std::vector<Operation> graph{kernel(10us),   kernel(1us),        waits(Stream::d2h, Stream::main),
                                       copy_out(30us), records_external(), waits(Stream::main, Stream::d2h)};
    const auto program = hand_graphs({graph}, replays(0, {kernel(10us)}));
    EXPECT_EQ(timeline(program, node)[1], (Piece{Stream::graph, 10us, 11us}));  // not known: as launched one by one
    node.graph.node_overhead = 1us;
    EXPECT_EQ(timeline(program, node), (std::vector<Piece>{{Stream::graph, 0us, 8us},
                                                           {Stream::graph, 8us, 8us},  // never below nothing
                                                           {Stream::graph_d2h, 8us, 38us},
                                                           {Stream::main, 8us, 18us}}));
}

// An executable graph takes memory of the driver's: 100 for itself, 10 a node, 1000 for the second branch.
TEST(GraphReplay, CountsTheMemoryOfExecutableGraphs) {
    types::Node node = quiet_node();
    node.graph.memory_per_graph = Bytes{100};
    node.graph.memory_per_node = Bytes{10};
    node.graph.memory_per_branch = Bytes{1000};
    const auto program = hand_graphs({offloading_graph(1us, 1us), {kernel(1us)}}, {launch(0), launch(1)});
    // three nodes on two branches, one node on one
    EXPECT_EQ(simulate({&program}, node, kTraced).ranks[0].steady.executable_graphs, Bytes{100 + 30 + 1000 + 100 + 10});
}

// --------------------------------------------------------------------------------------------------- whole iterations

/// One microbatch of four layers of core_attn and attn_proj, every kernel 1 us, every tensor 2 MiB and so 2 us on its
/// way.
Nanoseconds iteration_with_cap(std::optional<std::int64_t> cap) {
    layers::StageLayers stage = tests::synthetic_stage(0, 1, 4, {.kernel = 1us});
    types::CudaGraph graph;
    graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
    tests::use_graphs(stage, graph);
    types::Hardware hardware;
    hardware.node = quiet_node(1us);
    const types::ParallelLayout layout;
    const program::Durations durations(hardware, layout);
    types::OffloadChoice choice{.modules = {types::Module::core_attn, types::Module::attn_proj}};
    choice.max_inflight_offloads = cap;
    const program::Lowered lowered = program::lower(stage, 1, choice, types::RuleSet::main_2026_08, durations);
    return simulate({&lowered.program}, hardware.node, tests::without_interference()).step_time;
}

// Embedding, layers of three kernels, head, head backward: without joins 1 + 12 + 1 + 1 = 15 us up to the first layer's
// backward. A backward of three kernels a layer waits for reloads of two groups of 2 us: the kept last layer takes 3,
// and the reloads, one behind the other from its first kernel on, are there at 3, 5, 7, 9, 11, 13: the groups of the
// others run at 3-4, 5-6, 7-8, 9-10, 11-12, 13-14, each layer's third kernel behind its second: 15 us. Embedding and
// optimizer: 2. In all 32.
//
// Each copy waits for its kernel and the copy before it. Cap 2: the third layer's groups join the first's, long gone.
// Cap 1: they join the second's: core_attn's ended (8) when its kernel had, attn_proj's ends at 10, one after its
// kernel of 8-9: one microsecond more. Cap 0: each of six copies is waited for, 2 us each: 12 more.
TEST(GraphReplay, OfAWholeIterationWaitsForTheCopiesThatTheCapDoesNotLetFloat) {
    EXPECT_EQ(iteration_with_cap(std::nullopt), 32us);
    EXPECT_EQ(iteration_with_cap(2), 32us);
    EXPECT_EQ(iteration_with_cap(1), 33us);
    EXPECT_EQ(iteration_with_cap(0), 44us);
}

// -------------------------------------------------------------------------------------------------------- random jobs

Bytes counted(const program::OffloadCounts& counts) {
    return std::accumulate(counts.bytes.begin(), counts.bytes.end(), Bytes{});
}

std::vector<program::Lowered> lower_all(const tests::GraphJobs::Job& job) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    std::vector<program::Lowered> ranks;
    for (std::int64_t rank = 0; rank < job.scenario.parallel.pipeline_model_parallel_size; ++rank)
        ranks.push_back(program::lower(layers::build_megatron_stage(job.scenario, rank), job.scenario.microbatches(),
                                       job.choice, job.scenario.rules, durations));
    return ranks;
}

/// What comes to the host because the host asks for it: counts of rows, a norm. Groups leave on streams of their own.
Bytes read_by_host(const program::StepProgram& program) {
    Bytes read;
    for (const program::Instance& instance : program.instances(program::RunStage::steady))
        for (const program::Operation& operation : program.bodies[program::index(instance.body)].operations)
            if (operation.kind == OperationKind::copy && operation.stream == Stream::main &&
                operation.direction == program::Direction::device_to_host)
                read += operation.bytes;
    return read;
}

void check(const program::Lowered& lowered, const RankPrediction& rank) {
    EXPECT_EQ(rank.steady.copied[0], counted(lowered.counts) + read_by_host(lowered.program));
    EXPECT_EQ(rank.steady.copied[1], counted(lowered.counts));
    if (lowered.program.graphs.empty()) return;  // a rank of dense layers, say, where the router is captured
    EXPECT_GT(rank.steady.graph_launches, 0);
    EXPECT_GT(rank.steady.private_pools, 0_B);
    EXPECT_EQ(rank.capture.copied[0], 0_B);
}

constexpr int kRuns = 40;

// Every run goes to its end with nothing left behind, and its steps copy what the policy counts, out and back.
TEST(GraphReplay, OfRandomJobsCopiesWhatThePolicyCounts) {
    tests::GraphJobs jobs(tests::property_seed(20261130));
    for (int run = 0; run < kRuns; ++run) {
        const tests::GraphJobs::Job job = jobs.next();
        SCOPED_TRACE("run " + std::to_string(run) + ": " + text_of(job));
        const std::vector<program::Lowered> ranks = lower_all(job);
        if (std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.chunk_mismatch; })) continue;
        std::vector<const program::StepProgram*> programs;
        for (const program::Lowered& rank : ranks) programs.push_back(&rank.program);
        const Prediction prediction = simulate(programs, job.scenario.hardware.node);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) check(ranks[rank], prediction.ranks[rank]);
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace stowage::simulator
