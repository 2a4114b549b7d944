#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/layers/attention_unfused.hpp"
#include "planner/layers/inventory.hpp"
#include "planner/layers/support.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using namespace types::literals;

Scenario unfused(Scenario scenario) {
    scenario.env = {{"NVTE_FUSED_ATTN", "0"}, {"NVTE_FLASH_ATTN", "0"}};
    return scenario;
}

LayerScript dense(const Scenario& scenario) { return script_of(scenario, ScriptKind::dense_layer); }

std::int64_t saves_of(const LayerScript& layer, const std::string& tensor) {
    return std::count_if(layer.saved.begin(), layer.saved.end(),
                         [&](const auto& saved) { return layer.tensors[index(saved.tensor)].name == tensor; });
}

// Megatron's recorded small GPT, 4096 tokens of width 512: m = 4 * 8 * 1024^2 scores; probabilities, the dropped copy
// and its mask are 5 m = 167,772,160 bytes. Beside them qkv 12,582,912, context 4,194,304, two norms' inputs and
// outputs with statistics 2 * 8,421,376, masks of hidden dropout 2 * 2,097,152, fc1 and its activation 2 * 16,777,216:
// 239,140,864, as the recorded peak of gpt3_mcore_te_tp1_pp1_dist_optimizer_no_mmap_bin_files has it for each of twelve
// layers.
TEST(UnfusedAttention, SavesWhatMegatronsRecordedPeakHoldsForALayer) {
    EXPECT_EQ(saved_bytes(dense(unfused(small_gpt()))), Bytes{239'140'864});
}

// 64 heads of 4096 * 4096 scores in 16 bits are 2 GiB; eight of them share a key and a value, which are repeated.
// Without dropout the probabilities are one storage that softmax and the second product both save.
TEST(UnfusedAttention, SavesTheProbabilitiesTwiceWhereNothingIsDropped) {
    const LayerScript layer = dense(unfused(llama3_70b()));
    EXPECT_EQ(saves_of(layer, "core_attn.probabilities"), 2);
    EXPECT_EQ(saves_of(layer, "key.repeated"), 1);
    EXPECT_EQ(saves_of(layer, "core_attn.softmax_statistics"), 0);
    const auto probabilities = std::find_if(layer.tensors.begin(), layer.tensors.end(), [](const auto& tensor) {
        return tensor.name == "core_attn.probabilities";
    });
    ASSERT_NE(probabilities, layer.tensors.end());
    EXPECT_EQ(probabilities->bytes(), 2_GiB);
}

TEST(UnfusedAttention, IsTakenWhereTheOtherTwoAreSwitchedOff) {
    Scenario scenario = llama3_70b();
    EXPECT_FALSE(attends_unfused(scenario));
    scenario.env = {{"NVTE_FUSED_ATTN", "0"}};
    EXPECT_FALSE(attends_unfused(scenario));
    EXPECT_TRUE(unsupported_features(scenario).empty());  // flash attention is left
    EXPECT_TRUE(unsupported_features(unfused(scenario)).empty());
    Scenario split = unfused(scenario);
    split.parallel.context_parallel_size = 2;
    ASSERT_FALSE(unsupported_features(split).empty());
    EXPECT_EQ(unsupported_features(split).front().feature, "unfused attention over context-parallel ranks");
}

}  // namespace
}  // namespace stowage::layers::testing
