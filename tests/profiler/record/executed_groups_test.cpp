// Groups told from what the executor did to memory, beside those that the planner reads off the same layers: two ways
// that share nothing but the layers' scripts.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "executor/engine/extra_save.hpp"
#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "profiler/record/tensor_groups.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/profiler/record/executed_step.hpp"
#include "tests/profiler/record/planned_groups.hpp"

namespace stowage::profiler {
namespace {

using recording::Group;
using recording::Tensor;
using types::Bytes;
using types::Module;
using types::ModuleSet;

using testing::difference;
using testing::GroupTensors;
using testing::kept_groups;

const ModuleSet kAll = testing::movable_modules();

std::vector<Group> groups_of(const types::Scenario& scenario, const layers::StageLayers& stage,
                             const ModuleSet& modules = kAll) {
    return tensor_groups(testing::first_iteration(scenario, stage, modules));
}

void expect_planned_groups(const types::Scenario& scenario, std::int64_t rank = 0, const ModuleSet& modules = kAll) {
    const layers::StageLayers stage = layers::build_stage(scenario, rank);
    const GroupTensors expected = testing::planned_groups(stage, scenario.microbatches(), modules);
    EXPECT_FALSE(expected.empty());
    EXPECT_EQ(testing::moved_groups(groups_of(scenario, stage, modules)), expected);
}

TEST(ExecutedGroups, AreThoseOfDenseLayers) {
    expect_planned_groups(layers::testing::bare_stack());
    expect_planned_groups(layers::testing::plain_gpt());
    expect_planned_groups(layers::testing::grouped_gpt());
}

TEST(ExecutedGroups, AreThoseOfLatentAttention) { expect_planned_groups(layers::testing::latent_gpt()); }

TEST(ExecutedGroups, AreThoseOfLayersWithExperts) {
    expect_planned_groups(layers::testing::moe_gpt());
    expect_planned_groups(layers::testing::moe_slice());
}

TEST(ExecutedGroups, AreThoseOfATensorParallelSlice) {
    expect_planned_groups(layers::testing::tensor_slice(4, false));
    expect_planned_groups(layers::testing::tensor_slice(4, true));
}

TEST(ExecutedGroups, AreThoseOfEveryVirtualStage) {
    types::Scenario scenario = layers::testing::grouped_gpt();
    scenario.parallel.pipeline_model_parallel_size = 2;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = 2;
    for (const std::int64_t rank : {0, 1}) expect_planned_groups(scenario, rank);
}

TEST(ExecutedGroups, NameOnlyTheModulesThatMove) {
    expect_planned_groups(layers::testing::grouped_gpt(), 0, {Module::core_attn});
}

/// Storages that a layer of one microbatch keeps, by number.
std::map<std::uint32_t, Bytes> storages(const std::vector<Group>& groups, std::int32_t layer) {
    std::map<std::uint32_t, Bytes> kept;
    for (const Group& group : groups)
        for (const Tensor& tensor : group.tensors)
            if (group.layer == layer && group.microbatch == 0 && !tensor.parameter)
                kept[tensor.storage] = tensor.storage_bytes;
    return kept;
}

// Whatever leaves, each storage counts once: `saved_bytes` adds up what the layer's forward leaves for its backward. A
// layer's input is made by the layer in front, and is this one's because its norm moves it. The head moves nothing, so
// its input has the name of the layer that made it, the last one.
TEST(ExecutedGroups, KeepAsMuchAsTheLayersSave) {
    const types::Scenario scenario = layers::testing::grouped_gpt();
    const layers::StageLayers stage = layers::build_stage(scenario, 0);
    const std::vector<Group> groups = groups_of(scenario, stage);
    const layers::ChunkLayers& chunk = stage.chunks.front();
    for (std::size_t frame = 0; frame < chunk.order.size(); ++frame) {
        if (chunk.layer_numbers[frame] < 0) continue;
        Bytes sum;
        const bool last = chunk.layer_numbers[frame + 1] < 0;
        for (const auto& [number, bytes] : storages(groups, static_cast<std::int32_t>(chunk.layer_numbers[frame])))
            sum += bytes;
        const Bytes saved = layers::saved_bytes(stage.scripts[chunk.order[frame]]);
        EXPECT_EQ(sum.count, (saved + (last ? stage.boundary : Bytes{0})).count) << "frame " << frame;
    }
}

// Nobody looks at the program to find it: one tensor more in the module of every layer and microbatch, nothing else.
TEST(ExecutedGroups, ShowATensorThatAModuleSavesInAddition) {
    const types::Scenario scenario = layers::testing::moe_gpt();
    const layers::StageLayers stage = layers::build_stage(scenario, 0);
    const GroupTensors plain = kept_groups(groups_of(scenario, stage));
    for (const Module module : {Module::attn_proj, Module::moe_act}) {
        layers::StageLayers changed = stage;
        executor::save_one_more(changed, module);
        GroupTensors expected;
        for (const auto& [place, bytes] : plain)
            if (std::get<0>(place) == types::name_of(module)) expected[place] = {executor::kExtraSave.count};
        // Four layers of four microbatches have attn_proj, three of them experts.
        EXPECT_EQ(expected.size(), module == Module::attn_proj ? 16U : 12U);
        EXPECT_EQ(difference(kept_groups(groups_of(scenario, changed)), plain), expected) << types::name_of(module);
    }
}

// Where the module does not move, the tensor stays on the device, and is its module's all the same.
TEST(ExecutedGroups, ShowItAlsoWhereItStaysOnTheDevice) {
    const types::Scenario scenario = layers::testing::grouped_gpt();
    const layers::StageLayers stage = layers::build_stage(scenario, 0);
    layers::StageLayers changed = stage;
    executor::save_one_more(changed, Module::attn_proj);
    const GroupTensors rest =
        difference(kept_groups(groups_of(scenario, changed, {})), kept_groups(groups_of(scenario, stage, {})));
    EXPECT_EQ(rest.size(), 16U);  // four layers, four microbatches
    for (const auto& [place, bytes] : rest) {
        EXPECT_EQ(std::get<0>(place), "attn_proj");
        EXPECT_EQ(bytes, std::vector<std::int64_t>{executor::kExtraSave.count});
    }
}

TEST(ExecutedGroups, AreRefusedATensorMoreWhereNoLayerHasTheModule) {
    layers::StageLayers stage = layers::build_stage(layers::testing::grouped_gpt(), 0);
    EXPECT_THROW(executor::save_one_more(stage, Module::moe_act), types::UnsupportedError);
}

}  // namespace
}  // namespace stowage::profiler
