#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "planner/program/lowering.hpp"
#include "tests/support/lower_stage.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/synthetic_stage.hpp"

// Programs with graphs: what a capture holds and in which order, what a step does around its graphs, when delayed
// groups leave. Frames of a microbatch on a single stage: 0 the embedding, then the layers, then the head. Slots of a
// layer: 0 input, 1 gradient of the output, 2 core_attn, 3 attn_proj; then the reload buffers of these, then the pinned
// ones. With experts: 4 what the attention hands on, 5 the permuted tokens. The neighbour's 0 is the layer's output,
// its 1 the gradient of the layer's input. Groups hold 2 MiB.

namespace stowage::program {
namespace {

using tests::lower_stage;
using tests::synthetic_stage;
using tests::SyntheticLayer;
using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::OffloadChoice;
using Lines = std::vector<std::string>;
using Scope = std::vector<CudaGraphModule>;

const ModuleSet kBoth{Module::core_attn, Module::attn_proj};
const ModuleSet kExperts{Module::expert_fc1};
const SyntheticLayer kMoe{.expert_elements = 1 << 20};
const Scope kAttention{CudaGraphModule::attn};
const Scope kRouter{CudaGraphModule::attn, CudaGraphModule::moe_router};
const Scope kPreprocess{CudaGraphModule::attn, CudaGraphModule::moe_router, CudaGraphModule::moe_preprocess};

struct Pipeline {
    std::int64_t rank = 0;
    std::int64_t ranks = 1;
    std::int64_t microbatches = 1;
    std::int64_t layers = 2;
    std::int64_t virtual_stages = 1;
};

layers::StageLayers stage_of(const Pipeline& pipeline, const SyntheticLayer& layer, const Scope& scope,
                             CudaGraphImpl impl = CudaGraphImpl::transformer_engine) {
    layers::StageLayers stage =
        synthetic_stage(pipeline.rank, pipeline.ranks, pipeline.layers, layer, pipeline.virtual_stages);
    types::CudaGraph graph;
    graph.cuda_graph_impl = impl;
    graph.cuda_graph_modules = scope;
    tests::use_graphs(stage, graph);
    return stage;
}

Lowered graphs_of(const Pipeline& pipeline, const SyntheticLayer& layer, const Scope& scope,
                  const OffloadChoice& choice, CudaGraphImpl impl = CudaGraphImpl::transformer_engine) {
    return lower_stage(stage_of(pipeline, layer, scope, impl), pipeline.microbatches, choice);
}

OffloadChoice delayed(ModuleSet modules) {
    OffloadChoice choice{.modules = modules};
    choice.delay_until_cuda_graph = true;
    return choice;
}

std::int64_t copies(const Lowered& lowered) {
    return std::accumulate(lowered.counts.groups.begin(), lowered.counts.groups.end(), std::int64_t{0});
}

Lines steady_of(const Lowered& lowered) { return tests::text_of(lowered.program, RunStage::steady); }
Lines captured(const Lowered& lowered, std::size_t graph) {
    return tests::text_of(lowered.program, lowered.program.graphs[graph]);
}
std::ptrdiff_t count(const Lines& lines, const std::string& line) {
    return std::count(lines.begin(), lines.end(), line);
}
std::ptrdiff_t place(const Lines& lines, const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
}
bool any_has(const Lines& lines, const std::string& text) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
}
/// The lines from the first that equals `from` on, `count` of them.
Lines excerpt(const Lines& lines, const std::string& from, std::ptrdiff_t count) {
    const auto first = std::find(lines.begin(), lines.end(), from);
    return {first, first + std::min(count, lines.end() - first)};
}

// -------------------------------------------------------------------------------------------------------- one capture

// The copy is forked to the copy stream; its event is not recorded, since nobody may wait for it from another capture.
// The exit records the external event first and joins the copies behind it. What was made inside is freed inside; the
// output stays for the next layer.
TEST(GraphLowering, CapturesAForwardWithItsCopiesJoinedBehindTheEvent) {
    const Lowered lowered = graphs_of({}, {}, kAttention, {.modules = kBoth});
    EXPECT_EQ(captured(lowered, 0),
              (Lines{"graph_begin main",  //
                     "allocate main 2@1",
                     "compute main 'core_attn'",
                     "d2h waits main",
                     "pinned_acquire main 6@1",  //
                     "copy d2h 'offload core_attn'",
                     "record_stream d2h 2@1",
                     "free main 2@1",  //
                     "allocate main 3@1",
                     "compute main 'attn_proj'",
                     "d2h waits main",
                     "pinned_acquire main 7@1",  //
                     "copy d2h 'offload attn_proj'",
                     "record_stream d2h 3@1",
                     "free main 3@1",  //
                     "allocate main 0@2",
                     "compute main 'add'",  //
                     "main records GE",
                     "main waits d2h",
                     "graph_end main"}));
}

// The kept last layer's groups end with a prefetch each; the waits for the copies out and for the reloads are left out.
// Behind the last of them the event, then the joined reloads; then the output that the forward had left goes.
TEST(GraphLowering, CapturesABackwardWithItsReloadsJoinedBehindTheEvent) {
    const Lowered lowered = graphs_of({}, {}, kAttention, {.modules = kBoth});
    EXPECT_EQ(captured(lowered, 2),
              (Lines{"graph_begin main", "compute main 'attn_proj backward'", "free main 3@2",                       //
                     "h2d waits main", "allocate h2d 5@1", "copy h2d 'reload attn_proj'", "pinned_release h2d 7@1",  //
                     "compute main 'core_attn backward'", "free main 2@2",                                           //
                     "h2d waits main", "allocate h2d 4@1", "copy h2d 'reload core_attn'", "pinned_release h2d 6@1",  //
                     "allocate main 1@1", "compute main 'add backward'",                                             //
                     "main records GE", "main waits h2d", "graph_end main", "free main 0@3"}));
}

TEST(GraphLowering, LeavesOutEveryWaitForACopyInTheCaptureOfALayer) {
    for (const std::int64_t ranks : {1, 2, 4})
        for (const SyntheticLayer& layer : {SyntheticLayer{}, kMoe}) {
            const Lowered lowered = graphs_of({.ranks = ranks, .microbatches = ranks, .layers = 3}, layer, kAttention,
                                              {.modules = {Module::core_attn, Module::attn_proj, Module::expert_fc1}});
            const Lines lines = tests::text_of(lowered.program, RunStage::capture);
            EXPECT_TRUE(any_has(lines, "copy d2h"));
            EXPECT_FALSE(any_has(lines, " OFF "));
            EXPECT_FALSE(any_has(lines, " REL "));
        }
}

// Three kernels, two copies and the event on two branches; without copies the event alone beside the kernels.
TEST(GraphLowering, CountsTheNodesOfAGraph) {
    const Lowered lowered = graphs_of({}, {}, kAttention, {.modules = kBoth});
    ASSERT_EQ(lowered.program.graphs.size(), 4U);
    EXPECT_EQ(lowered.program.graphs[0].nodes, 6U);
    EXPECT_EQ(lowered.program.graphs[0].branches, 2U);
    EXPECT_EQ(lowered.program.graphs[1].nodes, 4U);
    EXPECT_EQ(lowered.program.graphs[1].branches, 1U);
    EXPECT_EQ(lowered.program.graphs[2].nodes, 6U);  // the kept layer's backward reloads the other's two
    EXPECT_EQ(lowered.program.graphs[3].nodes, 4U);
}

// ------------------------------------------------------------------------------------------------- what is captured

// One microbatch stands for all: two layers in each direction are four graphs; four microbatches launch sixteen.
TEST(GraphLowering, CapturesOneMicrobatchOnOneStage) {
    const Lowered lowered = graphs_of({.microbatches = 4}, {}, kAttention, {.modules = kBoth});
    EXPECT_EQ(lowered.program.graphs.size(), 4U);
    EXPECT_EQ(tests::follow(lowered.program, {RunStage::capture, RunStage::steady}).launches, 16);
    for (const Instance& instance : lowered.program.instances(RunStage::capture)) EXPECT_LE(instance.microbatch, 0);
}

/// "F0 B1": the microbatch and the direction of each captured layer, one layer a chunk.
std::string passes(const Lowered& lowered) {
    std::string words;
    for (const Graph& graph : lowered.program.graphs) {
        const Instance& instance = lowered.program.instances(RunStage::capture)[graph.begin];
        const std::string& name = lowered.program.bodies[index(instance.body)].name;
        words += name.find("backward") == std::string::npos ? 'F' : 'B';
        words += std::to_string(instance.microbatch) + ' ';
    }
    return words;
}

// Two ranks: the first runs one forward ahead, the last none. Two virtual stages in groups of two: the order of the
// table A0 A1 B0 B1 A2 A3 B2 B3, rank 1 two chunks ahead.
TEST(GraphLowering, CapturesAllMicrobatchesInTheOrderOfTheSchedule) {
    const auto order = [](const Pipeline& pipeline) { return passes(graphs_of(pipeline, {}, kAttention, {})); };
    EXPECT_EQ(order({.rank = 0, .ranks = 2, .microbatches = 3, .layers = 1}), "F0 F1 B0 F2 B1 B2 ");
    EXPECT_EQ(order({.rank = 1, .ranks = 2, .microbatches = 3, .layers = 1}), "F0 B0 F1 B1 F2 B2 ");
    EXPECT_EQ(order({.rank = 1, .ranks = 2, .microbatches = 4, .layers = 1, .virtual_stages = 2}),
              "F0 F1 F0 B0 F1 B1 F2 B0 F3 B1 F2 B2 F3 B3 B2 B3 ");
}

// Every chunk's graphs are captured once: microbatches x virtual stages x layers x 2.
TEST(GraphLowering, CapturesEachChunkOfEachVirtualStage) {
    const Lowered lowered = graphs_of({.rank = 1, .ranks = 2, .microbatches = 4, .layers = 3, .virtual_stages = 2},
                                      kMoe, kRouter, {.modules = kExperts});
    EXPECT_EQ(lowered.program.graphs.size(), 4U * 2 * 3 * 2);
    const tests::ProgramFacts facts = tests::follow(lowered.program, tests::whole_run(lowered.program));
    EXPECT_EQ(facts.launches, 2 * 48);
    EXPECT_EQ(facts.problems, Lines{});
}

TEST(GraphLowering, HasAnEagerStageOnlyIfAnIterationLiesBetweenTheFirstAndTheCapture) {
    layers::StageLayers stage = stage_of({}, {}, kAttention);
    stage.graphs.warmup_steps = 1;
    EXPECT_TRUE(lower_stage(stage, 1, {}).program.instances(RunStage::eager).empty());
    stage.graphs.warmup_steps = 2;
    EXPECT_FALSE(lower_stage(stage, 1, {}).program.instances(RunStage::eager).empty());
}

// With one stage every microbatch follows the flags that chunk 0 had at the capture. Four layers, four microbatches:
// 6 of 8 groups each at fraction 1; 5 at 0.8 (trunc(6 * 0.2) = 1), where eager chunks 1 to 3 move 6.
TEST(GraphLowering, RepeatsTheFirstMicrobatchsDecisionsOnOneStage) {
    const Pipeline pipeline{.microbatches = 4, .layers = 4};
    EXPECT_EQ(copies(graphs_of(pipeline, {}, kAttention, {.modules = kBoth})), 24);
    EXPECT_EQ(copies(graphs_of(pipeline, {}, kAttention, {.modules = kBoth, .fraction = 0.8})), 20);
    EXPECT_EQ(copies(lower_stage(synthetic_stage(0, 1, 4), 4, {.modules = kBoth, .fraction = 0.8})), 23);
}

// With several every chunk bakes its own: 62 of 64 on the first three ranks, 48 on the last, as without graphs.
TEST(GraphLowering, KeepsEachMicrobatchsDecisionsOnSeveralStages) {
    for (std::int64_t rank = 0; rank < 4; ++rank)
        EXPECT_EQ(copies(graphs_of({.rank = rank, .ranks = 4, .microbatches = 8, .layers = 4}, {}, kAttention,
                                   {.modules = kBoth})),
                  rank < 3 ? 62 : 48);
}

// ------------------------------------------------------------------------------------------------------ around a graph

// The whole forward of one layer: input copied into the graph's buffer, launch on the manager's stream, wait for the
// event; then the router, the permutation and the experts, eager.
TEST(GraphLowering, LaunchesOnTheManagersStreamAndWaitsForTheEvent) {
    const Lowered lowered =
        graphs_of({}, kMoe, kAttention, {.modules = {Module::core_attn, Module::attn_proj, Module::expert_fc1}});
    EXPECT_EQ(excerpt(steady_of(lowered), "compute main 'copy into graph'", 17),
              (Lines{"compute main 'copy into graph'", "graph waits main", "launch 0 graph", "main waits GE",
                     "compute main 'router'", "allocate main 5@1", "compute main 'permute'",
                     "compute main 'expert_fc1'", "d2h waits main", "pinned_acquire main 11@1",
                     "copy d2h 'offload tokens'", "record_stream d2h 5@1", "d2h records OFF expert_fc1@1",
                     "record_stream main 5@1", "free main 5@1", "allocate main 0@2", "compute main 'expert add'"}));
}

struct HookCase {
    Scope scope;
    ModuleSet modules;
    CudaGraphImpl impl = CudaGraphImpl::transformer_engine;
    bool hooks = false;
};

// Event, joined tail and the manager's stream come with `attn` listed and a group of attention chosen, under
// Transformer Engine: rule D7. Everything else is launched on the main stream.
TEST(GraphLowering, PlantsHooksOnlyForGroupsOfACapturedAttention) {
    const Scope router_alone{CudaGraphModule::moe_router};
    for (const HookCase& expected : {HookCase{.scope = kAttention, .modules = kBoth, .hooks = true},
                                     {.scope = kAttention, .modules = {Module::core_attn}, .hooks = true},
                                     {.scope = kRouter, .modules = {Module::core_attn}, .hooks = true},
                                     {.scope = kAttention, .modules = kExperts},
                                     {.scope = kAttention, .modules = {}},
                                     {.scope = router_alone, .modules = kBoth},
                                     {.scope = {}, .modules = kBoth},
                                     {.scope = kAttention, .modules = kExperts, .impl = CudaGraphImpl::local}}) {
        const Lowered lowered = graphs_of({}, kMoe, expected.scope, {.modules = expected.modules}, expected.impl);
        const Lines steady = steady_of(lowered);
        EXPECT_EQ(count(steady, "launch 0 graph") == 1, expected.hooks);
        EXPECT_EQ(count(steady, "launch 0 main") == 1, !expected.hooks);
        EXPECT_EQ(any_has(steady, "main waits GE"), expected.hooks);
        EXPECT_EQ(any_has(captured(lowered, 0), "main records GE"), expected.hooks);
        EXPECT_EQ(any_has(captured(lowered, 0), "main waits d2h"), expected.hooks);
    }
}

// Nothing of what a graph holds is made again in a step, and nothing outside it twice: both sides together run the
// kernels of a step without graphs.
TEST(GraphLowering, RunsEveryKernelOnceOnEitherSide) {
    for (const Scope& scope : {kAttention, kRouter, kPreprocess, Scope{}, Scope{CudaGraphModule::moe_router}})
        for (const Pipeline& pipeline :
             {Pipeline{.microbatches = 3}, Pipeline{.rank = 1, .ranks = 2, .microbatches = 3}}) {
            const auto kernels = [&](const Lowered& lowered) {
                const auto& program = lowered.program;
                return tests::follow(program, {RunStage::record, RunStage::capture, RunStage::steady}).kernels -
                       tests::follow(program, {RunStage::record, RunStage::capture}).kernels;
            };
            const Lowered eager = lower_stage(synthetic_stage(pipeline.rank, pipeline.ranks, pipeline.layers, kMoe),
                                              pipeline.microbatches, {});
            const Lowered graphs = graphs_of(pipeline, kMoe, scope, {});
            // Each launch copies one input; launches on one stage: microbatches x layers x 2.
            const std::int64_t inputs = pipeline.microbatches * pipeline.layers * 2;
            EXPECT_EQ(kernels(graphs), kernels(eager) + inputs);
        }
}

// ------------------------------------------------------------------------------------------------------ delayed groups

// Behind the next layer's launch instead of behind the experts; the tokens live that long.
TEST(GraphLowering, CommitsADelayedGroupBehindTheNextLayersLaunch) {
    for (const Scope& scope : {kAttention, kRouter}) {
        const Lines at_once = steady_of(graphs_of({}, kMoe, scope, {.modules = kExperts}));
        const Lines later = steady_of(graphs_of({}, kMoe, scope, delayed(kExperts)));
        EXPECT_LT(place(at_once, "copy d2h 'offload tokens'"), place(at_once, "launch 1 main"));
        EXPECT_EQ(excerpt(later, "launch 1 main", 7),
                  (Lines{"launch 1 main", "d2h waits main", "pinned_acquire main 11@1", "copy d2h 'offload tokens'",
                         "record_stream d2h 5@1", "free main 5@1", "d2h records OFF expert_fc1@1"}));
        EXPECT_EQ(count(later, "copy d2h 'offload tokens'"), 1);
    }
}

// With hooks the copy waits for what the main stream then has behind it: the next layer's captured compute.
TEST(GraphLowering, CommitsADelayedGroupBehindTheWaitForTheEvent) {
    ModuleSet modules = kBoth;
    modules.insert(Module::expert_fc1);
    const Lines lines = steady_of(graphs_of({}, kMoe, kAttention, delayed(modules)));
    EXPECT_EQ(excerpt(lines, "launch 1 graph", 3), (Lines{"launch 1 graph", "main waits GE", "d2h waits main"}));
}

// Nobody flushes the last layer's group of the last microbatch: it is dropped at the reset, with no commit at all. On
// one stage those of earlier microbatches are flushed when their backward is over: nothing is left to move, nor waited
// for.
TEST(GraphLowering, DropsTheLastLayersGroupOnOneStage) {
    for (const std::int64_t microbatches : {1, 3}) {
        const Pipeline pipeline{.microbatches = microbatches};
        EXPECT_EQ(count(steady_of(graphs_of(pipeline, kMoe, kAttention, {.modules = kExperts})), "d2h waits main"),
                  2 * microbatches);
        const Lowered later = graphs_of(pipeline, kMoe, kAttention, delayed(kExperts));
        EXPECT_EQ(count(steady_of(later), "d2h waits main"), microbatches);
        EXPECT_EQ(copies(later), microbatches);  // the other layer's, as without delay
        EXPECT_EQ(tests::follow(later.program, tests::whole_run(later.program)).problems, Lines{});
    }
}

// The first of four ranks, eight microbatches of two layers. At once: 16 groups but the margin's one. Delayed, the last
// layer of a microbatch is committed in the forward of the next, in time for its own backward, but of the last
// microbatch never: one fewer. On the first of two ranks, three microbatches: F0 F1 B0 F2 B1 B2. At once 6 - 1.
// Delayed: of microbatch 0 the last stays by the margin; that of 1 is committed after B0, when its own backward is
// next: it stays; that of 2 is dropped: 3.
TEST(GraphLowering, CommitsTheLastLayersGroupInTheNextMicrobatchsForward) {
    const auto counted = [](const Pipeline& pipeline, const OffloadChoice& choice) {
        return copies(graphs_of(pipeline, kMoe, kAttention, choice));
    };
    const Pipeline four{.ranks = 4, .microbatches = 8};
    EXPECT_EQ(counted(four, {.modules = kExperts}), 15);
    EXPECT_EQ(counted(four, delayed(kExperts)), 14);
    const Pipeline two{.ranks = 2, .microbatches = 3};
    EXPECT_EQ(counted(two, {.modules = kExperts}), 5);
    EXPECT_EQ(counted(two, delayed(kExperts)), 3);
}

// Only replays of Transformer Engine's graphs delay, and not where chunks run beside each other.
TEST(GraphLowering, DelaysNothingElsewhere) {
    const auto same = [](layers::StageLayers stage) {
        const Lowered at_once = lower_stage(stage, 4, {.modules = kExperts});
        const Lowered later = lower_stage(stage, 4, delayed(kExperts));
        EXPECT_GT(copies(at_once), 0);
        for (const RunStage run : {RunStage::record, RunStage::eager, RunStage::capture, RunStage::steady})
            EXPECT_EQ(tests::text_of(at_once.program, run), tests::text_of(later.program, run));
    };
    const Pipeline pipeline{.layers = 3};
    same(stage_of(pipeline, kMoe, kAttention, CudaGraphImpl::none));
    same(stage_of(pipeline, kMoe, kAttention, CudaGraphImpl::local));
    same(stage_of(pipeline, kMoe, {}, CudaGraphImpl::full_iteration));
    layers::StageLayers paired = stage_of(pipeline, kMoe, kAttention);
    paired.paired_chunks = true;
    same(paired);
    layers::StageLayers whole = stage_of(pipeline, kMoe, kAttention);
    whole.graphs.layers.assign(whole.scripts.size(), std::nullopt);  // layers without a graph
    same(whole);
}

// --------------------------------------------------------------------------------------------------- forced releases

// The permuted tokens are the output of the graph that ends behind the permutation: its memory cannot be given back.
TEST(GraphLowering, ReportsAReleaseOfAGraphsOutput) {
    EXPECT_TRUE(graphs_of({}, kMoe, kPreprocess, {.modules = kExperts}).released_static);
    EXPECT_TRUE(graphs_of({}, kMoe, kPreprocess, delayed(kExperts)).released_static);
    EXPECT_FALSE(graphs_of({}, kMoe, kRouter, {.modules = kExperts}).released_static);
    EXPECT_FALSE(graphs_of({}, kMoe, kPreprocess, {.modules = kBoth}).released_static);
    EXPECT_FALSE(graphs_of({}, kMoe, kPreprocess, {.modules = kExperts}, CudaGraphImpl::none).released_static);
}

// -------------------------------------------------------------------------------------- reloads inside a layer's graph

// A weakness of Megatron's, not of the program: inside a capture nobody waits for a reload, which rests on its being a
// layer ahead. Where a group of experts follows in the last layer, no chunk has started all its groups while the
// attention is captured, so that no earlier chunk prefetches for it; and a fraction that keeps that layer's attn_proj
// and not its core_attn makes the end of the one prefetch the other, which the same graph then reads; and so in every
// layer before it. Nine groups a chunk, fraction 0.7: trunc(9 * 0.3) = 2 stay, expert_fc1 and attn_proj: core_attn of
// three layers of chunks 1 to 3. Chunk 0 keeps core_attn too, by the margin. Eager steps wait.
TEST(GraphLowering, ReadsInOneGraphWhatItReloadsWhereTheFractionCutsALayer) {
    const Pipeline pipeline{.ranks = 4, .microbatches = 4, .layers = 3};
    const OffloadChoice choice{.modules = {Module::core_attn, Module::attn_proj, Module::expert_fc1}, .fraction = 0.7};
    const Lowered lowered = graphs_of(pipeline, kMoe, kAttention, choice);
    ASSERT_FALSE(lowered.chunk_mismatch);
    const tests::ProgramFacts first = tests::follow(lowered.program, {RunStage::record});
    const tests::ProgramFacts facts = tests::follow(lowered.program, {RunStage::record, RunStage::capture});
    EXPECT_EQ(facts.unawaited_reloads - first.unawaited_reloads, 3 * 3);
    const Lowered eager = lower_stage(synthetic_stage(0, 4, 3, kMoe), 4, choice);
    EXPECT_EQ(tests::follow(eager.program, {RunStage::steady}).unawaited_reloads, 0);
}

// There too, at fraction 1, the groups of every chunk but the first are read back by the graph itself, on its main
// branch: nothing prefetches the last layer's, and each group's end then asks for one that was read already.
TEST(GraphLowering, ReadsBackInsideTheGraphWhatNoEarlierChunkPrefetches) {
    const Pipeline pipeline{.ranks = 4, .microbatches = 4, .layers = 3};
    const OffloadChoice choice{.modules = {Module::core_attn, Module::attn_proj, Module::expert_fc1}};
    const Lowered lowered = graphs_of(pipeline, kMoe, kAttention, choice);
    const Lines lines = tests::text_of(lowered.program, RunStage::capture);
    EXPECT_EQ(count(lines, "copy main 'reload core_attn'"), 9);
    EXPECT_EQ(count(lines, "copy main 'reload attn_proj'"), 9);
}

// ---------------------------------------------------------------------------------------------------- whole iterations

TEST(GraphLowering, CapturesAWholeIterationInOneGraph) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const Lowered lowered = graphs_of({.rank = rank, .ranks = 2, .microbatches = 3, .layers = 3}, {}, {},
                                          {.modules = kBoth}, CudaGraphImpl::full_iteration);
        const Lowered eager = lower_stage(synthetic_stage(rank, 2, 3), 3, {.modules = kBoth});
        ASSERT_EQ(lowered.program.graphs.size(), 1U);
        // Inside it is the eager step up to the optimizer, except that the host waits for nothing.
        Lines expected = steady_of(eager);
        expected.erase(expected.begin() + place(expected, "compute main 'adam'") - 1, expected.end());
        std::erase(expected, "device_sync main");
        Lines inside = captured(lowered, 0);
        EXPECT_EQ(inside.front(), "graph_begin main");
        inside.erase(inside.begin());
        EXPECT_EQ(inside, expected);
        EXPECT_TRUE(any_has(inside, " OFF "));
        EXPECT_TRUE(any_has(inside, "main waits REL"));
        // The step launches it and runs the optimizer.
        const Lines steady = steady_of(lowered);
        EXPECT_EQ(steady.front(), "launch 0 main");
        EXPECT_EQ(steady.size(), 4U);  // and norm, adam, its scratch freed
        EXPECT_EQ(copies(lowered), copies(eager));
    }
}

}  // namespace
}  // namespace stowage::program
