// Policy `stowage` in whole programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "planner/program/choose_free.hpp"
#include "tests/support/lower_stage.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/synthetic_stage.hpp"

// Frames, slots and sizes as in lowering_test.cpp: layers of core_attn and attn_proj, one tensor of 2 MiB each.

namespace stowage::program {
namespace {

using tests::lower_stage;
using tests::ProgramFacts;
using tests::synthetic_stage;
using tests::SyntheticLayer;
using types::FreeOffload;
using types::Module;
using types::ModuleSet;
using types::OffloadChoice;
using types::literals::operator""_MiB;
using Lines = std::vector<std::string>;

const ModuleSet kBoth{Module::core_attn, Module::attn_proj};

OffloadChoice choice_of(std::vector<ModuleSet> by_layer, std::int64_t reload_ahead = 2, std::int64_t join_after = 1) {
    OffloadChoice choice;
    choice.modules = kBoth;
    choice.free = FreeOffload{std::move(by_layer), reload_ahead, join_after};
    return choice;
}

bool concerns_copies(const std::string& line) {
    if (line.starts_with("pinned") || line.starts_with("record_stream")) return false;
    return line.find("d2h") != std::string::npos || line.find("h2d") != std::string::npos ||
           line.find("OFF") != std::string::npos || line.find("REL") != std::string::npos;
}

// Layers 0 and 1 (frames 1 and 2) leave whole, layer 2 stays. Commits: each joins the copy of the one before, the kept
// core_attn of frame 3 the last. Backward order: 3's two kept groups, then attn_proj@2, core_attn@2, attn_proj@1,
// core_attn@1; the end of each reloads the second next.
TEST(StowagePolicy, OrdersCopiesEventsAndWaits) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 3), 1, choice_of({kBoth, kBoth, {}}));
    Lines lines = tests::text_of(lowered.program, RunStage::steady);
    std::erase_if(lines, [](const std::string& line) { return !concerns_copies(line); });
    Lines expected;
    const auto leave = [&](const std::string& name, const std::string& frame) {
        expected.insert(expected.end(),
                        {"d2h waits main", "copy d2h 'offload " + name + "'", "d2h records OFF " + name + frame});
    };
    const auto load = [&](const std::string& name, const std::string& slot, const std::string& frame) {
        expected.insert(expected.end(),
                        {"h2d waits main", "h2d waits OFF " + name + frame, "allocate h2d " + slot + frame,
                         "copy h2d 'reload " + name + "'", "h2d records REL " + name + frame});
    };
    leave("core_attn", "@1");
    leave("attn_proj", "@1");
    expected.push_back("main waits OFF core_attn@1");
    leave("core_attn", "@2");
    expected.push_back("main waits OFF attn_proj@1");
    leave("attn_proj", "@2");
    expected.insert(expected.end(), {"main waits OFF core_attn@2", "main waits OFF attn_proj@2"});
    load("attn_proj", "5", "@2");  // attn_proj@3 is done
    load("core_attn", "4", "@2");  // core_attn@3 is done
    expected.push_back("main waits REL attn_proj@2");
    load("attn_proj", "5", "@1");
    expected.push_back("main waits REL core_attn@2");
    load("core_attn", "4", "@1");
    expected.insert(expected.end(), {"main waits REL attn_proj@1", "main waits REL core_attn@1"});
    EXPECT_EQ(lines, expected);
    EXPECT_EQ(tests::text_of(lowered.program, RunStage::record).size(),
              tests::text_of(lowered.program, RunStage::steady).size() + 1);  // nothing is learned; "moments" are made
}

TEST(StowagePolicy, MovesWhatWasChosenAndNothingElse) {
    // Layer 0's attn_proj and both of layer 2: 6 MiB a microbatch, 3 microbatches, the last layer among them.
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 3), 3, choice_of({{Module::attn_proj}, {}, kBoth}));
    const auto at = [](Module module) { return static_cast<std::size_t>(module); };
    EXPECT_EQ(lowered.counts.bytes[at(Module::attn_proj)], 12_MiB);
    EXPECT_EQ(lowered.counts.bytes[at(Module::core_attn)], 6_MiB);
    EXPECT_EQ(lowered.counts.groups[at(Module::attn_proj)], 6);
    EXPECT_EQ(lowered.counts.eligible_groups, 18);
    EXPECT_EQ(lowered.counts.record_groups, 9);
    EXPECT_EQ(lowered.counts.record_inline_reads + lowered.counts.steady_inline_reads, 0);
    const ProgramFacts facts = tests::follow(lowered.program, {RunStage::record, RunStage::steady});
    EXPECT_EQ(facts.problems, Lines{});
    EXPECT_EQ(facts.offloaded, 36_MiB);
    EXPECT_EQ(facts.reloaded, 36_MiB);
    EXPECT_EQ(facts.read_inline, 0_MiB);
}

TEST(StowagePolicy, IssuesNothingForGroupsThatStay) {
    const Lowered kept = lower_stage(synthetic_stage(0, 1, 3), 1, choice_of({}));
    const Lowered plain = lower_stage(synthetic_stage(0, 1, 3), 1, {});
    EXPECT_EQ(tests::text_of(kept.program, RunStage::steady), tests::text_of(plain.program, RunStage::steady));
}

TEST(StowagePolicy, WaitsForAReloadAtTheFirstReadNotAtTheHook) {
    // attn_norm encloses the layer: its backward hook comes first, its tensor (the layer's input) is read last.
    SyntheticLayer layer;
    layer.norm = true;
    OffloadChoice choice = choice_of({{Module::attn_norm}});
    choice.modules.insert(Module::attn_norm);
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 2, layer), 1, choice);
    const Lines lines = tests::text_of(lowered.program, RunStage::steady);
    const auto wait = std::find(lines.begin(), lines.end(), "main waits REL attn_norm@1");
    ASSERT_NE(wait, lines.end());
    EXPECT_TRUE((wait + 1)->starts_with("pinned_release main")) << *(wait + 1);  // no copy can take it too early now
    EXPECT_EQ(*(wait + 2), "compute main 'add backward'");
}

TEST(StowagePolicy, EmptiesNothingThatAKeptGroupNeeds) {
    // Both modules save one storage, which attn_proj's commit would empty by force; core_attn's save stays.
    SyntheticLayer layer;
    layer.shared = true;
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 2, layer), 1, choice_of({{Module::attn_proj}}));
    EXPECT_FALSE(lowered.released_while_saved);
    EXPECT_EQ(tests::follow(lowered.program, {RunStage::record, RunStage::steady}).problems, Lines{});
}

// ------------------------------------------------------------------------------------------------------- choose_free

TEST(ChooseFree, TakesGroupsFromTheFirstLayerOnAndNeverTheLast) {
    // Four layers of 2 + 2 MiB: 12 MiB eligible.
    const layers::StageLayers stage = synthetic_stage(0, 1, 4);
    OffloadChoice choice;
    choice.modules = kBoth;
    EXPECT_EQ(eligible_bytes(stage, choice), 12_MiB);
    EXPECT_EQ(choose_free(stage, choice, 1.0).by_layer, (std::vector<ModuleSet>{kBoth, kBoth, kBoth}));
    EXPECT_EQ(choose_free(stage, choice, 0.5).by_layer, (std::vector<ModuleSet>{kBoth, {Module::core_attn}}));
    EXPECT_EQ(choose_free(stage, choice, 5_MiB).by_layer, (std::vector<ModuleSet>{kBoth, {Module::core_attn}}));
    EXPECT_EQ(choose_free(stage, choice, 0.0).by_layer, std::vector<ModuleSet>{});
}

TEST(ChooseFree, SpreadsGroupsOverLayersThatAreCaptured) {
    // 2 + 2 MiB a layer, three layers eligible: one group of each before the first layer gives its second.
    layers::StageLayers stage = synthetic_stage(0, 1, 4);
    stage.graphs.impl = types::CudaGraphImpl::transformer_engine;
    stage.graphs.layers.assign(stage.scripts.size(), layers::LayerGraphs{});
    OffloadChoice choice;
    choice.modules = kBoth;
    const ModuleSet one{Module::core_attn};
    EXPECT_EQ(choose_free(stage, choice, 6_MiB).by_layer, (std::vector<ModuleSet>{one, one, one}));
    EXPECT_EQ(choose_free(stage, choice, 8_MiB).by_layer, (std::vector<ModuleSet>{kBoth, one, one}));
}

TEST(ChooseFree, LeavesSmallTensorsAndOtherModulesAlone) {
    SyntheticLayer layer;
    layer.attn_proj_elements = 1 << 19;
    OffloadChoice choice;
    choice.modules = kBoth;
    EXPECT_EQ(eligible_bytes(synthetic_stage(0, 1, 3, layer), choice), 4_MiB);
    choice.modules = {};
    EXPECT_EQ(eligible_bytes(synthetic_stage(0, 1, 3, layer), choice), 0_MiB);
}

TEST(ChooseFree, GivesCopiesALayersTime) {
    OffloadChoice choice;
    choice.modules = kBoth;
    EXPECT_EQ(choose_free(synthetic_stage(0, 1, 4), choice, 1.0).reload_ahead, 2);  // two groups a layer
    EXPECT_EQ(choose_free(synthetic_stage(0, 1, 4), choice, 1.0).join_after, 2);
    choice.modules = {Module::core_attn};
    EXPECT_EQ(choose_free(synthetic_stage(0, 1, 4), choice, 1.0).reload_ahead, 1);
}

TEST(ChooseFree, JoinsTheLayersOfAllStages) {
    OffloadChoice choice;
    choice.modules = {Module::core_attn};
    FreeOffload all = choose_free(synthetic_stage(1, 2, 2), choice, 1.0);  // layers 2 and 3, of which 3 is its last
    add_layers(all, choose_free(synthetic_stage(0, 2, 2), choice, 1.0));   // layers 0 and 1
    EXPECT_EQ(all.by_layer, (std::vector<ModuleSet>{choice.modules, {}, choice.modules}));
    add_layers(all, FreeOffload{{}, 5, 7});
    EXPECT_EQ(all.reload_ahead, 5);
    EXPECT_EQ(all.join_after, 7);
}

// ------------------------------------------------------------------------------------------------------- any choice

struct Case {
    layers::StageLayers stage;
    std::int64_t microbatches = 1;
    OffloadChoice choice;
    bool graphs = false;
};

Case random_case(std::mt19937_64& random) {
    const auto upto = [&](std::uint64_t most) { return static_cast<std::int64_t>(random() % (most + 1)); };
    SyntheticLayer layer;
    layer.shared = upto(2) == 0;
    layer.gathered = upto(2) == 0;
    layer.norm = upto(1) == 0;
    layer.expert_elements = upto(2) == 0 ? 1 << 20 : 0;
    const std::int64_t stages = 1 + upto(3);
    const std::int64_t virtual_stages = stages > 1 && upto(1) == 0 ? 2 : 1;
    const std::int64_t layer_count = 1 + upto(3);
    Case made{synthetic_stage(upto(static_cast<std::uint64_t>(stages) - 1), stages, layer_count, layer, virtual_stages),
              stages * (1 + upto(2)),
              {},
              false};
    made.choice.min_offloaded_tensor_size = 1;
    for (const Module module : {Module::attn_norm, Module::core_attn, Module::attn_proj, Module::expert_fc1})
        if (upto(3) > 0) made.choice.modules.insert(module);
    FreeOffload free;
    free.reload_ahead = 1 + upto(4);
    free.join_after = upto(4);
    free.by_layer.resize(static_cast<std::size_t>(stages * virtual_stages * layer_count));
    for (ModuleSet& modules : free.by_layer)
        for (const Module module : made.choice.modules.list())
            if (upto(1) == 0) modules.insert(module);
    made.choice.free = free;
    for (layers::ChunkLayers& chunk : made.stage.chunks)
        if (const std::size_t first = chunk.layer_numbers.front() < 0 ? 1 : 0; upto(4) == 0)
            chunk.recomputed = {{first, first}};
    return made;
}

Bytes sum_of(const Lowered& lowered) {
    Bytes sum;
    for (const Bytes bytes : lowered.counts.bytes) sum += bytes;
    return sum;
}

TEST(StowagePolicy, MakesASoundProgramOfAnyChoice) {
    std::mt19937_64 random(tests::property_seed(611));
    std::int64_t moved = 0;
    for (int run = 0; run < 400; ++run) {
        SCOPED_TRACE(run);
        const Case made = random_case(random);
        const Lowered lowered = lower_stage(made.stage, made.microbatches, made.choice);
        const ProgramFacts facts =
            tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
        ASSERT_EQ(facts.problems, Lines{});
        EXPECT_EQ(facts.unawaited_reloads, 0);
        EXPECT_EQ(facts.read_inline, Bytes{0});
        EXPECT_EQ(facts.reloaded, facts.offloaded);
        EXPECT_EQ(facts.offloaded, Bytes{3 * sum_of(lowered).count});
        EXPECT_FALSE(lowered.released_while_saved);
        EXPECT_FALSE(lowered.chunk_mismatch);
        moved += facts.offloaded.count > 0 ? 1 : 0;
    }
    EXPECT_GT(moved, 200);
}

TEST(StowagePolicy, MakesASoundProgramOfAnyChoiceUnderGraphs) {
    using types::CudaGraphImpl;
    std::mt19937_64 random(tests::property_seed(612));
    std::int64_t by_graphs = 0;
    for (int run = 0; run < 400; ++run) {
        SCOPED_TRACE(run);
        Case made = random_case(random);
        for (layers::ChunkLayers& chunk : made.stage.chunks) chunk.recomputed.clear();
        types::CudaGraph graph;
        graph.cuda_graph_impl = std::vector{CudaGraphImpl::transformer_engine, CudaGraphImpl::local,
                                            CudaGraphImpl::full_iteration}[random() % 3];
        if (random() % 2 == 0) graph.cuda_graph_modules = {types::CudaGraphModule::attn};
        tests::use_graphs(made.stage, graph);
        const Lowered lowered = lower_stage(made.stage, made.microbatches, made.choice);
        const ProgramFacts facts = tests::follow(lowered.program, tests::whole_run(lowered.program));
        ASSERT_EQ(facts.problems, Lines{});
        EXPECT_EQ(facts.unawaited_reloads, 0);
        EXPECT_EQ(facts.read_inline, Bytes{0});
        EXPECT_FALSE(lowered.released_while_saved);
        by_graphs += facts.by_graphs.count > 0 ? 1 : 0;
    }
    EXPECT_GT(by_graphs, 50);
}

}  // namespace
}  // namespace stowage::program
