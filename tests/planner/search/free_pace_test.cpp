#include "planner/search/free_pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/program/choose_free.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::search {
namespace {

/// Eight dense layers, of which everything that may leaves.
class FreePace : public ::testing::Test {
protected:
    FreePace() {
        types::Scenario scenario = reader::load_scenario(STOWAGE_SOURCE_DIR "/scenarios/dense-8x4096.yaml").scenario;
        scenario.offload.offload_modules = types::ModuleSet{};
        scenario.offload.activation_offload_fraction = 1;
        job_ = prepare(std::move(scenario));
        for (const auto& [module, name] : types::enum_names<types::Module>()) choice_.modules.insert(module);
        choice_.free = program::choose_free(job_.stages.front(), choice_, 1.0);
    }

    [[nodiscard]] Nanoseconds step(std::int64_t join_after, std::int64_t reload_ahead) const {
        OffloadChoice choice = choice_;
        choice.free->join_after = join_after;
        choice.free->reload_ahead = reload_ahead;
        return evaluate(job_, choice).step_time;
    }

    Job job_;
    OffloadChoice choice_;
};

// Against every pair of values that is tried.
TEST_F(FreePace, IsAsFastAsAnyPair) {
    const types::FreeOffload paced = *choose_pace(job_, choice_, {}).free;
    Nanoseconds best = Nanoseconds::max();
    for (const std::int64_t join_after : kPaces)
        for (const std::int64_t reload_ahead : kPaces) best = std::min(best, step(join_after, reload_ahead));
    const Nanoseconds chosen = step(paced.join_after, paced.reload_ahead);
    // Each of the two may be a thousandth over.
    EXPECT_LE(static_cast<double>(chosen.count()), static_cast<double>(best.count()) * (1 + kAsFast) * (1 + kAsFast));
    EXPECT_EQ(paced.by_layer, choice_.free->by_layer);
}

// Nothing that holds memory for a shorter time is as fast.
TEST_F(FreePace, IsTheSmallestThatIsAsFast) {
    const types::FreeOffload paced = *choose_pace(job_, choice_, {}).free;
    ASSERT_GT(paced.join_after, kPaces.front());
    ASSERT_GT(paced.reload_ahead, kPaces.front());
    const auto before = [](std::int64_t pace) { return *(std::find(kPaces.begin(), kPaces.end(), pace) - 1); };
    const double chosen = static_cast<double>(step(paced.join_after, paced.reload_ahead).count());
    EXPECT_GT(static_cast<double>(step(before(paced.join_after), paced.reload_ahead).count()), chosen);
    EXPECT_GT(static_cast<double>(step(paced.join_after, before(paced.reload_ahead)).count()), chosen);
}

TEST_F(FreePace, LeavesAloneWhatIsNotOpen) {
    choice_.free->join_after = 5;
    choice_.free->reload_ahead = 7;
    EXPECT_EQ(choose_pace(job_, choice_, {false, false}), choice_);
    const OffloadChoice joined = choose_pace(job_, choice_, {true, false});
    EXPECT_EQ(joined.free->reload_ahead, 7);
    const OffloadChoice reloaded = choose_pace(job_, choice_, {false, true});
    EXPECT_EQ(reloaded.free->join_after, 5);
    EXPECT_THROW((void)choose_pace(job_, OffloadChoice{}, {}), std::logic_error);
}

}  // namespace
}  // namespace stowage::search
