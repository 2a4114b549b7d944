#include "planner/layers/recorded_groups.hpp"

#include <gtest/gtest.h>

#include "planner/layers/kept_storages.hpp"
#include "planner/layers/stage.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers {
namespace {

/// What the layers themselves say that they keep, by the name of who made it, in microbatches 0 and 1.
recording::Recording recording_of(const StageLayers& stage) {
    recording::Recording recording;
    std::uint32_t storage = 0;
    for (const std::int32_t microbatch : {0, 1})
        for (const KeptStorage& kept : kept_storages(stage)) {
            const LayerModule& maker = kept.names.back();
            recording::Group group;
            group.module = maker.module;
            group.layer = static_cast<std::int32_t>(maker.layer);
            group.microbatch = microbatch;
            group.tensors.push_back({.storage = storage++, .bytes = kept.bytes, .storage_bytes = kept.bytes});
            recording.groups.push_back(group);
        }
    return recording;
}

StageLayers stage() { return build_stage(testing::bare_stack(), 0); }

TEST(RecordedGroups, OfTheSameLayersDoNotDiffer) {
    for (const types::Scenario& scenario :
         {testing::bare_stack(), testing::plain_gpt(), testing::latent_gpt(), testing::moe_gpt()}) {
        const StageLayers layers = build_stage(scenario, 0);
        EXPECT_FALSE(kept_storages(layers).empty());
        EXPECT_TRUE(group_differences(recording_of(layers), layers).empty());
    }
}

TEST(RecordedGroups, AreNotComparedWhereNothingWasRecorded) {
    EXPECT_TRUE(group_differences(recording::Recording{}, stage()).empty());
}

TEST(RecordedGroups, MayNameWhoSavesOrWhoMakes) {
    // Attention's output is made by core_attn and moved by attn_proj: 2 x 320 x 6 x 56 in bf16 = 430,080 bytes.
    recording::Recording recording = recording_of(stage());
    int renamed = 0;
    for (recording::Group& group : recording.groups)
        if (group.module == "core_attn" && group.tensors.front().bytes == Bytes{430'080}) {
            group.module = "attn_proj";
            ++renamed;
        }
    EXPECT_EQ(renamed, 8);  // four layers, two microbatches
    EXPECT_TRUE(group_differences(recording, stage()).empty());
}

TEST(RecordedGroups, NameTheModuleThatKeepsMore) {
    // Statistics of attention, 2 x 6 x 320 in fp32 = 15,360 bytes, stand once in each layer. Layers 0 to 2 keep 1000
    // bytes more beside them.
    recording::Recording recording = recording_of(stage());
    std::uint32_t storage = 10'000;
    for (recording::Group& group : recording.groups)
        if (group.module == "core_attn" && group.layer < 3 && group.tensors.front().bytes == Bytes{15'360})
            group.tensors.push_back({.storage = storage++, .bytes = Bytes{1000}, .storage_bytes = Bytes{1000}});
    const std::vector<GroupDifference> differences = group_differences(recording, stage());
    ASSERT_EQ(differences.size(), 1U);
    EXPECT_EQ(differences[0].module, "core_attn");
    EXPECT_EQ(differences[0].layers, (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_EQ(differences[0].recorded, std::vector<Bytes>{Bytes{1000}});
    EXPECT_TRUE(differences[0].planned.empty());
    EXPECT_EQ(differences[0].more(), Bytes{1000});
    EXPECT_EQ(words_of(differences[0]),
              "core_attn of layers 0 to 2 kept 1 tensor (1000 bytes) more: a microbatch needs 1000 bytes more for each "
              "than is planned");
}

TEST(RecordedGroups, NameATensorOfAnotherSize) {
    // Statistics in bf16: half of 15,360 bytes.
    recording::Recording recording = recording_of(stage());
    for (recording::Group& group : recording.groups)
        if (group.layer == 2 && group.tensors.front().bytes == Bytes{15'360})
            group.tensors.front().storage_bytes = Bytes{7'680};
    const std::vector<GroupDifference> differences = group_differences(recording, stage());
    ASSERT_EQ(differences.size(), 1U);
    EXPECT_EQ(
        words_of(differences[0]),
        "core_attn of layer 2 kept 1 tensor (7680 bytes) more, and not 1 tensor (15360 bytes) that the plan has: a "
        "microbatch needs 7680 bytes less for each than is planned");
}

TEST(RecordedGroups, CountAStorageOnceAndParametersNever) {
    recording::Recording recording = recording_of(stage());
    recording::Group& group = recording.groups.front();
    group.tensors.push_back(group.tensors.front());
    group.tensors.push_back({.storage = 99'999, .bytes = {}, .storage_bytes = Bytes{1000}, .parameter = true});
    EXPECT_TRUE(group_differences(recording, stage()).empty());
}

TEST(RecordedGroups, OfAFrameThatRunsAgainAreItsInput) {
    // Full recomputation, each layer by itself: only layers' inputs are kept, 2 x 320 x 384 in bf16 = 491,520 bytes,
    // and what the loss takes, of the same size.
    types::Scenario scenario = testing::bare_stack();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::full;
    scenario.recompute.recompute_method = types::RecomputeMethod::uniform;
    scenario.recompute.recompute_num_layers = 1;
    const std::vector<KeptStorage> kept = kept_storages(build_stage(scenario, 0));
    EXPECT_EQ(kept.size(), 5U);
    for (const KeptStorage& storage : kept) EXPECT_EQ(storage.bytes, Bytes{491'520});
}

}  // namespace
}  // namespace stowage::layers
