#include "planner/program/frame_layout.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/synthetic_stage.hpp"

namespace stowage::program {
namespace {

using layers::SavedIndex;
using layers::ScriptBuilder;
using layers::ScriptKind;
using layers::Slot;
using types::DataType;
using types::Module;
using types::OffloadChoice;

constexpr SavedIndex kFirst{0};
constexpr SavedIndex kSecond{1};

OffloadChoice both(std::int64_t minimum) {
    return {.modules = {Module::core_attn, Module::attn_proj}, .fraction = 1, .min_offloaded_tensor_size = minimum};
}

// The filter counts elements, and a tensor of exactly the minimum moves.
TEST(FrameLayout, MovesATensorOfTheMinimumAndKeepsOneBelow) {
    const auto script = tests::synthetic_layer({.core_attn_elements = 1000, .attn_proj_elements = 999});
    const FrameLayout layout(script, both(1000));
    EXPECT_EQ(layout.movable(Module::core_attn), std::vector<SavedIndex>{kFirst});
    EXPECT_TRUE(layout.movable(Module::attn_proj).empty());
    EXPECT_TRUE(layout.is_movable(kFirst));
    EXPECT_FALSE(layout.is_movable(kSecond));
    EXPECT_EQ(layout.group_bytes(Module::core_attn), Bytes{2000});  // 1000 elements of bf16
    EXPECT_EQ(layout.group_bytes(Module::attn_proj), Bytes{0});
    EXPECT_TRUE(layout.has_group(Module::attn_proj));  // an empty group still has its hooks
}

TEST(FrameLayout, HasOnlyTheGroupsOfTheChosenModulesInTheOrderTheyStart) {
    const auto script = tests::synthetic_layer({.norm = true});
    const FrameLayout all(script, {.modules = {Module::attn_proj, Module::core_attn, Module::attn_norm}});
    EXPECT_EQ(all.groups(), (std::vector<Module>{Module::attn_norm, Module::core_attn, Module::attn_proj}));
    EXPECT_EQ(all.group_index(Module::attn_proj), 2U);
    const FrameLayout one(script, {.modules = {Module::attn_proj, Module::moe_act}});
    EXPECT_EQ(one.groups(), std::vector<Module>{Module::attn_proj});
    EXPECT_FALSE(one.has_group(Module::core_attn));
    EXPECT_THROW((void)one.group_index(Module::core_attn), std::logic_error);
    EXPECT_EQ(FrameLayout(script, {}).events(), 0U);
}

/// core_attn saves one storage of 6000 elements three times: whole, a gathered view of a third, whole again; and ten
/// statistics.
layers::LayerScript saves_of_one_storage() {
    ScriptBuilder script(ScriptKind::dense_layer, "layer");
    script.begin_forward(layers::Part::core_attn);
    const Slot packed = script.tensor("packed", {6000});
    const Slot statistics = script.tensor("statistics", {10}, DataType::fp32);
    script.start(Module::core_attn);
    std::vector<SavedIndex> saved{script.save(packed, Module::core_attn)};
    saved.push_back(script.save_view("value", packed, Module::core_attn, {20, 100}, layers::CopyForm::gathered));
    saved.push_back(script.save(packed, Module::core_attn));
    saved.push_back(script.save(statistics, Module::core_attn));
    saved.push_back(script.save(packed));  // outside any group
    script.commit(Module::core_attn);
    script.begin_backward(layers::Part::core_attn);
    script.commit(Module::core_attn);
    for (const SavedIndex entry : saved) script.forget(entry);
    script.start(Module::core_attn);
    return script.build();
}

// Megatron copies each saved entry, whatever storage it shares: 12000 + 2000 * 2 + 12000 bytes; the view has 2000
// elements of two bytes, the statistics stay.
TEST(FrameLayout, CountsEachSavedEntryOfAGroupOnce) {
    const FrameLayout layout(saves_of_one_storage(), both(2000));
    EXPECT_EQ(layout.group_bytes(Module::core_attn), Bytes{12000 + 4000 + 12000});
    EXPECT_EQ(layout.movable(Module::core_attn).size(), 3U);
    EXPECT_FALSE(layout.is_movable(SavedIndex{4}));
    EXPECT_EQ(FrameLayout(saves_of_one_storage(), both(2001)).group_bytes(Module::core_attn), Bytes{24000});
}

TEST(FrameLayout, LeavesWhatTheModuleHoldsOnTheDevice) {
    const auto script = tests::synthetic_layer({.core_attn_elements = 1000, .weight = true});
    const FrameLayout layout(script, both(1));
    EXPECT_EQ(layout.movable(Module::core_attn), std::vector<SavedIndex>{kFirst});
    EXPECT_EQ(layout.group_bytes(Module::core_attn), Bytes{2000});
}

TEST(FrameLayout, GivesEverySlotAndEventANumberOfItsOwn) {
    const auto script = tests::synthetic_layer({.norm = true, .weight = true});
    const FrameLayout layout(script, {.modules = {Module::attn_norm, Module::core_attn, Module::attn_proj}});
    std::set<std::uint32_t> slots;
    for (std::uint32_t i = 0; i < script.tensors.size(); ++i) slots.insert(i);
    for (std::size_t i = 0; i < script.saved.size(); ++i) {
        slots.insert(layout.reload_slot(static_cast<SavedIndex>(i)));
        slots.insert(layout.pinned_slot(static_cast<SavedIndex>(i)));
    }
    // input, grad_output, core_attn, weight, attn_proj; four saved entries
    EXPECT_EQ(layout.slots(), 5U + 2 * 4U);
    EXPECT_EQ(slots.size(), layout.slots());
    EXPECT_EQ(*slots.rbegin(), layout.slots() - 1);

    std::set<std::uint32_t> events;
    for (const Module module : layout.groups()) {
        events.insert(layout.offload_event(module));
        events.insert(layout.reload_event(module));
    }
    EXPECT_EQ(layout.events(), 6U);
    EXPECT_EQ(events, (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

// What a commit lists passes the filter as the tensor that was saved; a tensor that the group did not save, as itself.
TEST(FrameLayout, ReleasesByForceOnlyWhatPassesTheSizeFilter) {
    const auto script = saves_of_one_storage();
    const Slot packed{2};
    const Slot statistics{3};
    EXPECT_TRUE(FrameLayout(script, both(6000)).releasable(script, packed, Module::core_attn));
    EXPECT_FALSE(FrameLayout(script, both(6001)).releasable(script, packed, Module::core_attn));
    EXPECT_FALSE(FrameLayout(script, both(11)).releasable(script, statistics, Module::core_attn));
    EXPECT_TRUE(FrameLayout(script, both(10)).releasable(script, statistics, Module::attn_proj));
    EXPECT_FALSE(FrameLayout(script, both(11)).releasable(script, statistics, Module::attn_proj));
}

}  // namespace
}  // namespace stowage::program
