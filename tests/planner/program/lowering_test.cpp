#include "planner/program/lowering.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/program_checker.hpp"
#include "tests/support/synthetic_stage.hpp"

// Layers of two modules, core_attn and attn_proj, with one saved tensor of 2 MiB each, unless a test says otherwise.
// Frames of a microbatch on a single stage: 0 the embedding, then the layers, then the head.
// Slots of a layer: 0 input, 1 gradient of the output, 2 core_attn, 3 attn_proj; 4 and 5 their reload buffers, 6 and 7
// their pinned buffers. The neighbour's 0 is the layer's output, its 1 the gradient of the layer's input.

namespace stowage::program {
namespace {

using tests::ProgramFacts;
using tests::synthetic_stage;
using tests::SyntheticLayer;
using types::Module;
using types::OffloadChoice;
using types::RuleSet;
using Lines = std::vector<std::string>;

const types::ModuleSet kBoth{Module::core_attn, Module::attn_proj};
constexpr std::int64_t kMiB = 1024 * 1024;

types::Hardware hardware() {
    types::Hardware machine;
    machine.node.gpus_per_node = 8;
    machine.node.nvlink = {{100e9}, Nanoseconds{2000}};
    machine.node.network = {{10e9}, Nanoseconds{5000}};
    machine.node.device.memory_bandwidth = {1e12};
    const types::CopyCurve curve({{Bytes{kMiB}, Nanoseconds{20'000}}, {Bytes{2 * kMiB}, Nanoseconds{40'000}}});
    machine.node.copy.device_to_host = curve;
    machine.node.copy.host_to_device = curve;
    return machine;
}

Lowered lower_stage(const layers::StageLayers& stage, std::int64_t microbatches, const OffloadChoice& choice,
                    RuleSet rules = RuleSet::main_2026_08) {
    const types::Hardware machine = hardware();
    types::ParallelLayout layout;
    layout.pipeline_model_parallel_size = stage.pipeline_size;
    return lower(stage, microbatches, choice, rules, Durations(machine, layout));
}

Lines lines_of(const Lowered& lowered, RunStage stage = RunStage::steady) {
    return tests::text_of(lowered.program, stage);
}

/// The lines from the first that equals `from` on, `count` of them.
Lines excerpt(const Lines& lines, const std::string& from, std::ptrdiff_t count) {
    const auto first = std::find(lines.begin(), lines.end(), from);
    return {first, first + std::min(count, lines.end() - first)};
}

std::ptrdiff_t count(const Lines& lines, const std::string& line) {
    return std::count(lines.begin(), lines.end(), line);
}

std::ptrdiff_t place(const Lines& lines, const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
}

ProgramFacts facts_of(const Lowered& lowered) {
    return tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
}

// ---------------------------------------------------------------------------------------------- one group, its order

// The tensor is free when autograd's reference (at the commit) and the variable (after it) are gone.
TEST(Lowering, CopiesAtTheCommitAndFreesWhenTheVariableGoes) {
    const Lines lines = lines_of(lower_stage(synthetic_stage(0, 1, 3), 1, {.modules = kBoth}));
    EXPECT_EQ(excerpt(lines, "allocate main 2@1", 10),
              (Lines{"allocate main 2@1", "compute main 'core_attn'", "d2h waits main", "pinned_acquire main 6@1",
                     "copy d2h 'offload core_attn'", "record_stream d2h 2@1", "d2h records OFF core_attn@1",
                     "free main 2@1", "allocate main 3@1", "compute main 'attn_proj'"}));
}

bool concerns_copies(const std::string& line) {
    if (line.starts_with("pinned")) return false;
    return line.find("d2h") != std::string::npos || line.find("h2d") != std::string::npos ||
           line.find("REL") != std::string::npos;
}

// The order of Megatron's own log for two modules and three layers: the copy stream waits for the main stream at every
// commit, also at those of the kept last layer (frame 3); the ends of its groups prefetch those of the layer before.
TEST(Lowering, OrdersCopiesEventsAndWaitsAsMegatronDoes) {
    Lines lines = lines_of(lower_stage(synthetic_stage(0, 1, 3), 1, {.modules = kBoth}));
    std::erase_if(lines, [](const std::string& line) { return !concerns_copies(line); });
    Lines expected;
    for (const std::string frame : {"@1", "@2"})
        for (const auto& [slot, name] : {std::pair{"2", "core_attn"}, std::pair{"3", "attn_proj"}}) {
            expected.push_back("d2h waits main");
            expected.push_back(std::string("copy d2h 'offload ") + name + "'");
            expected.push_back(std::string("record_stream d2h ") + slot + frame);
            expected.push_back(std::string("d2h records OFF ") + name + frame);
        }
    expected.insert(expected.end(), {"d2h waits main", "d2h waits main"});
    const auto load = [&](const std::string& name, const std::string& slot, const std::string& frame) {
        expected.insert(expected.end(),
                        {"h2d waits main", "h2d waits OFF " + name + frame, "allocate h2d " + slot + frame,
                         "copy h2d 'reload " + name + "'", "h2d records REL " + name + frame});
    };
    load("attn_proj", "5", "@2");
    load("core_attn", "4", "@2");
    expected.push_back("main waits REL attn_proj@2");
    load("attn_proj", "5", "@1");
    expected.push_back("main waits REL core_attn@2");
    load("core_attn", "4", "@1");
    expected.insert(expected.end(), {"main waits REL attn_proj@1", "h2d waits main",  //
                                     "main waits REL core_attn@1", "h2d waits main"});
    EXPECT_EQ(lines, expected);
}

// The pinned buffer goes back when the reload is issued; the reloaded tensor when the backward forgets it.
TEST(Lowering, GivesThePinnedBufferBackAtTheReloadAndTheTensorAtTheForget) {
    const Lines lines = lines_of(lower_stage(synthetic_stage(0, 1, 3), 1, {.modules = kBoth}));
    EXPECT_EQ(excerpt(lines, "h2d waits OFF attn_proj@2", 5),
              (Lines{"h2d waits OFF attn_proj@2", "allocate h2d 5@2", "copy h2d 'reload attn_proj'",
                     "pinned_release h2d 7@2", "h2d records REL attn_proj@2"}));
    EXPECT_EQ(
        excerpt(lines, "main waits REL attn_proj@2", 4),
        (Lines{"main waits REL attn_proj@2", "compute main 'attn_proj backward'", "free main 5@2", "h2d waits main"}));
}

// In the first iteration every group is read on the main stream, and the prefetch after it finds nothing to move.
TEST(Lowering, ReadsInlineInTheFirstIterationAndRecordsEmptyReloads) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 1), 1, {.modules = kBoth});
    EXPECT_EQ(
        excerpt(lines_of(lowered, RunStage::record), "allocate main 5@1", 7),
        (Lines{"allocate main 5@1", "copy main 'reload attn_proj'", "pinned_release main 7@1",
               "compute main 'attn_proj backward'", "free main 5@1", "h2d waits main", "h2d waits OFF attn_proj@1"}));
    EXPECT_EQ(lowered.counts.record_groups, 2);
    EXPECT_EQ(lowered.counts.record_inline_reads, 2);
}

TEST(Lowering, LeavesNoTraceOfTheManagerWithoutModules) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 3), 2, {});
    for (const std::string& line : lines_of(lowered)) EXPECT_FALSE(concerns_copies(line)) << line;
    EXPECT_EQ(lowered.counts.eligible_groups, 0);
    // kept tensors are freed by the backward, after the kernel that used them
    const Lines lines = lines_of(lowered);
    EXPECT_LT(place(lines, "compute main 'core_attn backward'"), place(lines, "free main 2@1"));
}

// A reload that runs ahead under a fraction is awaited by the kept group of the same module: four layers, half of six
// groups off, core_attn of layer 2 (frame 2) is the first to come back.
TEST(Lowering, WaitsInAKeptGroupForTheReloadOfAnotherLayer) {
    Lines lines = lines_of(lower_stage(synthetic_stage(0, 1, 4), 1, {.modules = kBoth, .fraction = 0.5}));
    std::erase_if(lines, [](const std::string& line) { return line.find("REL") == std::string::npos; });
    EXPECT_EQ(lines, (Lines{"h2d records REL core_attn@2", "main waits REL core_attn@2",  //
                            "h2d records REL attn_proj@1", "main waits REL attn_proj@1",  //
                            "h2d records REL core_attn@1", "main waits REL core_attn@1"}));
}

// ------------------------------------------------------------------------------------------------ what is freed, when

// Attention's output: saved by core_attn and by attn_proj. The first copy frees nothing, the release of the second
// does, before the variable goes.
TEST(Lowering, FreesATensorSavedTwiceOnlyByTheForcedRelease) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 2, {.shared = true}), 1, {.modules = kBoth});
    EXPECT_EQ(
        excerpt(lines_of(lowered), "d2h waits main", 13),
        (Lines{"d2h waits main", "pinned_acquire main 5@1", "copy d2h 'offload core_attn'", "record_stream d2h 2@1",
               "d2h records OFF core_attn@1", "compute main 'attn_proj'", "d2h waits main", "pinned_acquire main 6@1",
               "copy d2h 'offload core_attn'", "record_stream d2h 2@1", "d2h records OFF attn_proj@1",
               "record_stream main 2@1", "free main 2@1"}));
    EXPECT_FALSE(lowered.released_while_saved);
}

// With core_attn alone its copy of the output frees nothing: attn_proj still holds it until the backward.
TEST(Lowering, KeepsATensorThatAnotherModuleSaved) {
    const Lines lines =
        lines_of(lower_stage(synthetic_stage(0, 1, 2, {.shared = true}), 1, {.modules = {Module::core_attn}}));
    EXPECT_EQ(count(lines, "copy d2h 'offload core_attn'"), 1);  // of two layers the last stays
    EXPECT_GT(place(lines, "free main 2@1"), place(lines, "compute main 'attn_proj backward'"));
    EXPECT_EQ(count(lines, "free main 2@1"), 1);
}

// Rank 1's delta keeps the first group, core_attn of the first layer, whose saved tensor attn_proj then empties.
TEST(Lowering, ReportsAReleaseOfATensorThatAKeptGroupNeeds) {
    const auto stage = synthetic_stage(1, 2, 3, {.shared = true, .norm = true});
    OffloadChoice choice{.modules = kBoth};
    choice.modules.insert(Module::attn_norm);
    EXPECT_FALSE(lower_stage(stage, 4, choice).released_while_saved);
    choice.delta_bytes_across_pp_ranks = 2 * kMiB + 1;  // attn_norm and core_attn of the first chunk's first layer
    const Lowered lowered = lower_stage(stage, 4, choice);
    EXPECT_FALSE(lowered.chunk_mismatch);
    EXPECT_TRUE(lowered.released_while_saved);
}

TEST(Lowering, NeverAllocatesOrFreesWhatTheModuleHolds) {
    // slots: 0 input, 1 gradient, 2 core_attn, 3 weight, 4 attn_proj
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 2, {.weight = true}), 1, {.modules = kBoth});
    for (const RunStage stage : {RunStage::record, RunStage::steady})
        for (const std::string& line : lines_of(lowered, stage))
            EXPECT_EQ(line.find(" 3@1"), std::string::npos) << line;
    EXPECT_EQ(facts_of(lowered).problems, Lines{});
}

// A view is gathered into a contiguous temporary of the copy stream; half of 2 MiB is copied, all of it freed.
TEST(Lowering, GathersAViewOnTheCopyStream) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 2, {.gathered = true}), 1,
                                        {.modules = kBoth, .fraction = 1, .min_offloaded_tensor_size = 1 << 19});
    EXPECT_EQ(excerpt(lines_of(lowered), "allocate d2h 4@1", 8),
              (Lines{"allocate d2h 4@1", "compute d2h 'gather core_attn view'", "pinned_acquire main 6@1",
                     "copy d2h 'offload core_attn view'", "free d2h 4@1", "record_stream d2h 2@1",
                     "d2h records OFF core_attn@1", "free main 2@1"}));
    const auto core_attn = static_cast<std::size_t>(Module::core_attn);
    EXPECT_EQ(lowered.counts.bytes[core_attn], Bytes{kMiB});
}

// A tensor below the filter is neither copied nor released, and its group still makes the copy stream wait.
TEST(Lowering, KeepsTensorsBelowTheSizeFilter) {
    const auto stage = synthetic_stage(0, 1, 2, {.core_attn_elements = 1000, .attn_proj_elements = 1001});
    const Lowered lowered = lower_stage(stage, 1, {.modules = kBoth, .fraction = 1, .min_offloaded_tensor_size = 1001});
    const Lines lines = lines_of(lowered);
    EXPECT_EQ(count(lines, "copy d2h 'offload core_attn'"), 0);
    EXPECT_EQ(count(lines, "copy d2h 'offload attn_proj'"), 1);
    EXPECT_EQ(count(lines, "d2h waits main"), 4);
    EXPECT_EQ(lowered.counts.record_groups, 2);
    EXPECT_EQ(lowered.counts.record_inline_reads, 2);
    EXPECT_EQ(lowered.counts.eligible_groups, 2);
}

// --------------------------------------------------------------------------------------------------------- transfers

// A received input is allocated for the next frame's layer; sending lets go of what was sent, and the backward's also
// of the input that the schedule kept. Rank 1 of 3: frames 0 and 1 are its layers, 2 what came from and 3 what goes to
// a neighbour.
TEST(Lowering, AllocatesWhatIsReceivedAndFreesWhatWasSent) {
    const Lowered lowered = lower_stage(synthetic_stage(1, 3, 2), 1, {});
    const Lines lines = lines_of(lowered);
    EXPECT_EQ(excerpt(lines, "allocate main 0@0", 5), (Lines{"allocate main 0@0", "receive_forward waits main",
                                                             "peer_transfer receive_forward 'receive_forward'",
                                                             "main waits receive_forward", "device_sync main"}));
    EXPECT_EQ(excerpt(lines, "peer_transfer send_forward 'send_forward'", 4),
              (Lines{"peer_transfer send_forward 'send_forward'", "main waits send_forward", "device_sync main",
                     "free main 0@3"}));
    EXPECT_EQ(excerpt(lines, "peer_transfer send_backward 'send_backward'", 5),
              (Lines{"peer_transfer send_backward 'send_backward'", "main waits send_backward", "device_sync main",
                     "free main 1@2", "free main 0@0"}));
}

// attn_norm's forced release empties the stage's input, though the schedule holds it: the send frees it no second time.
TEST(Lowering, LeavesAnInputAloneThatAReleaseEmptied) {
    const Lowered lowered = lower_stage(synthetic_stage(1, 3, 2, {.norm = true}), 2, {.modules = {Module::attn_norm}});
    const Lines lines = lines_of(lowered);
    EXPECT_EQ(count(lines, "free main 0@0"), 1);
    EXPECT_LT(place(lines, "free main 0@0"), place(lines, "peer_transfer send_forward 'send_forward'"));
    EXPECT_EQ(facts_of(lowered).problems, Lines{});
}

// ------------------------------------------------------------------------------------------------------- whole steps

struct WholeStep {
    SyntheticLayer layer;
    types::ModuleSet modules;
    double fraction = 1;
    std::int64_t minimum = 1;
};

std::vector<WholeStep> whole_steps() {
    const types::ModuleSet all{Module::attn_norm, Module::core_attn, Module::attn_proj};
    const SyntheticLayer uneven{.core_attn_elements = 3000, .attn_proj_elements = 500, .boundary_elements = 1000};
    return {{.layer = {}, .modules = {}},
            {.layer = {}, .modules = kBoth},
            {.layer = {}, .modules = kBoth, .fraction = 0.5},
            {.layer = {.norm = true}, .modules = all},
            {.layer = {.norm = true}, .modules = all, .fraction = 0.6},
            {.layer = {.shared = true, .gathered = true, .norm = true, .weight = true}, .modules = all},
            {.layer = {.shared = true}, .modules = {Module::core_attn}},
            {.layer = uneven, .modules = kBoth, .fraction = 0.7, .minimum = 600}};
}

template <class Check>
void for_each_whole_step(Check check) {
    const std::vector<WholeStep> steps = whole_steps();
    for (std::size_t i = 0; i < steps.size(); ++i)
        for (std::int64_t stages = 1; stages <= 3; ++stages)
            for (std::int64_t rank = 0; rank < stages; ++rank)
                for (std::int64_t microbatches = 1; microbatches <= 5; ++microbatches) {
                    SCOPED_TRACE("step " + std::to_string(i) + ", rank " + std::to_string(rank) + " of " +
                                 std::to_string(stages) + ", microbatches " + std::to_string(microbatches));
                    check(lower_stage(synthetic_stage(rank, stages, 4, steps[i].layer), microbatches,
                                      {.modules = steps[i].modules,
                                       .fraction = steps[i].fraction,
                                       .min_offloaded_tensor_size = steps[i].minimum}));
                }
}

TEST(Lowering, AllocatesAndFreesEveryTensorOfAStepOnce) {
    for_each_whole_step([](const Lowered& lowered) {
        ASSERT_FALSE(lowered.chunk_mismatch);
        EXPECT_EQ(facts_of(lowered).problems, Lines{});
    });
}

TEST(Lowering, BringsBackInSteadyStepsWhatItMovedAndWaitsForIt) {
    for_each_whole_step([](const Lowered& lowered) {
        const ProgramFacts facts = tests::follow(lowered.program, {RunStage::steady});
        EXPECT_EQ(facts.unawaited_reloads, 0);
        EXPECT_EQ(facts.read_inline, Bytes{0});
        EXPECT_EQ(facts.reloaded, facts.offloaded);
        Bytes counted;
        for (const Bytes bytes : lowered.counts.bytes) counted += bytes;
        EXPECT_EQ(counted, facts.offloaded);
        EXPECT_EQ(lowered.counts.steady_inline_reads, 0);
    });
}

// Four microbatches of four layers with two groups: 32 in all, copied in the first step; later each microbatch keeps
// two, as its backward is next: 4 * 6 = 24 of 2 MiB. The table counts one microbatch: 3 layers of each.
TEST(Lowering, CountsWhatAStepMoves) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 4), 4, {.modules = kBoth});
    EXPECT_EQ(lowered.counts.eligible_groups, 32);
    EXPECT_EQ(lowered.counts.record_groups, 32);
    EXPECT_EQ(lowered.counts.record_inline_reads, 32);
    for (const Module module : {Module::core_attn, Module::attn_proj}) {
        const auto number = static_cast<std::size_t>(module);
        EXPECT_EQ(lowered.counts.groups[number], 12);
        EXPECT_EQ(lowered.counts.bytes[number], Bytes{24 * kMiB});
        EXPECT_EQ(lowered.counts.table[number], Bytes{6 * kMiB});
    }
}

TEST(Lowering, StopsWhereMegatronLosesTheChunk) {
    EXPECT_TRUE(lower_stage(synthetic_stage(0, 1, 4), 4, {.modules = kBoth, .fraction = 0}).chunk_mismatch);
    const Lowered older = lower_stage(synthetic_stage(0, 1, 4), 4, {.modules = kBoth, .fraction = 0}, RuleSet::pr_3219);
    EXPECT_FALSE(older.chunk_mismatch);
    EXPECT_EQ(tests::follow(older.program, {RunStage::steady}).offloaded, Bytes{0});
}

TEST(Lowering, SharesBodiesBetweenMicrobatches) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        const auto stage = synthetic_stage(rank, 2, 6);
        const Lowered few = lower_stage(stage, 8, {.modules = kBoth});
        const Lowered many = lower_stage(stage, 64, {.modules = kBoth});
        EXPECT_EQ(few.program.bodies.size(), many.program.bodies.size());
        EXPECT_GT(many.program.operation_count(RunStage::steady), 7 * few.program.operation_count(RunStage::steady));
    }
}

TEST(Lowering, HoldsWeightsFromTheStartAndMomentsFromTheFirstOptimizerStep) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 1), 1, {});
    // Two microbatch-independent frames follow the layers': 3 layers, inward, outward, then the persistent one.
    EXPECT_EQ(lines_of(lowered, RunStage::setup), Lines{"allocate main 0@5"});
    EXPECT_EQ(count(lines_of(lowered, RunStage::record), "allocate main 1@5"), 1);
    EXPECT_EQ(count(lines_of(lowered, RunStage::steady), "allocate main 1@5"), 0);
}

TEST(Lowering, GivesTheSameProgramTwice) {
    const auto stage = synthetic_stage(1, 3, 4, {.shared = true, .gathered = true, .norm = true});
    const OffloadChoice choice{.modules = {Module::attn_norm, Module::core_attn, Module::attn_proj}, .fraction = 0.8};
    const Lowered first = lower_stage(stage, 6, choice);
    const Lowered second = lower_stage(stage, 6, choice);
    EXPECT_EQ(first.program.labels, second.program.labels);
    EXPECT_EQ(first.program.pinned_keys, second.program.pinned_keys);
    EXPECT_EQ(first.program.scope_frames, second.program.scope_frames);
    ASSERT_EQ(first.program.bodies.size(), second.program.bodies.size());
    for (std::size_t i = 0; i < first.program.bodies.size(); ++i)
        EXPECT_EQ(first.program.bodies[i].name, second.program.bodies[i].name);
    for (const RunStage stage_of_run : {RunStage::setup, RunStage::record, RunStage::steady})
        EXPECT_EQ(lines_of(first, stage_of_run), lines_of(second, stage_of_run));
}

// Without the distributed optimizer every parameter has four tensors, and a rank with all experts of a large model more
// than the 65,536 that sixteen bits tell apart.
TEST(Lowering, KeepsApartAnyNumberOfStates) {
    using State = layers::StateBuffer;
    constexpr std::size_t kStates = 70'000;
    auto stage = synthetic_stage(0, 1, 1);
    stage.states.assign(kStates, {"weights", Bytes{512}, State::What::weights, State::When::setup});
    const Lowered lowered = lower_stage(stage, 1, {});
    std::vector<std::uint32_t> slots;
    for (const auto& issued : tests::expand(lowered.program, RunStage::setup))
        if (issued.operation.kind == OperationKind::allocate) slots.push_back(issued.operation.slot);
    std::sort(slots.begin(), slots.end());
    EXPECT_EQ(slots.size(), kStates);
    EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end()), slots.end());
}

// Megatron's pool keeps buffers by shape and type: two layers' equal tensors share a key, tensors of another size do
// not.
TEST(Lowering, GivesTensorsOfOneSizeOnePoolKey) {
    const auto stage = synthetic_stage(0, 1, 3, {.core_attn_elements = 2 << 20});
    const Lowered lowered = lower_stage(stage, 1, {.modules = kBoth});
    EXPECT_EQ(lowered.program.pinned_keys.size(), 3U);  // the unused one, 4 MiB and 2 MiB
    std::vector<std::uint32_t> keys;
    for (const auto& issued : tests::expand(lowered.program, RunStage::record))
        if (issued.operation.kind == OperationKind::pinned_acquire) keys.push_back(issued.operation.detail);
    EXPECT_EQ(keys, (std::vector<std::uint32_t>{1, 2, 1, 2, 1, 2}));
}

// A collective that does not hold up the main stream is waited for at the join, on the stream that it runs on; a second
// join has nothing to wait for.
TEST(Lowering, JoinsTheStreamsOfPostedCollectives) {
    auto stage = synthetic_stage(0, 1, 1);
    const auto layer = std::find_if(stage.scripts.begin(), stage.scripts.end(), [](const layers::LayerScript& script) {
        return script.kind == layers::ScriptKind::dense_layer;
    });
    layer->collectives.push_back(
        {"gather", layers::CollectiveKind::all_gather, layers::CommGroup::tensor, Bytes{kMiB}, false});
    const layers::Step join{.kind = layers::StepKind::join_collectives};
    layer->forward.insert(layer->forward.begin(), {{.kind = layers::StepKind::collective}, join, join});
    types::ParallelLayout layout;
    layout.tensor_model_parallel_size = 2;
    const Lowered lowered = lower(stage, 1, {}, RuleSet::main_2026_08, Durations(hardware(), layout));
    int posted = 0;
    int waits = 0;
    for (const auto& issued : tests::expand(lowered.program, RunStage::steady)) {
        const Operation& operation = issued.operation;
        if (operation.kind == OperationKind::collective && operation.stream == Stream::communication) ++posted;
        const bool waited = operation.kind == OperationKind::stream_wait && operation.stream == Stream::main &&
                            operation.other == Stream::communication;
        if (waited) {
            EXPECT_EQ(posted, 1);
            ++waits;
        }
    }
    EXPECT_EQ(posted, 1);
    EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace stowage::program
