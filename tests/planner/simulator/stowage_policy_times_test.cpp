// What policy `stowage` costs in virtual time, against times worked out by hand.

#include <gtest/gtest.h>

#include <vector>

#include "planner/simulator/simulator.hpp"
#include "tests/support/even_pipeline.hpp"
#include "tests/support/hand_program.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using tests::EvenPipeline;
using tests::quiet_node;
using types::Module;
using types::literals::operator""_MiB;

/// Two layers of three kernels of 1 us in each direction; core_attn of layer 0 leaves, 2 MiB in 2 us.
EvenPipeline two_layers(std::int64_t reload_ahead, std::int64_t join_after) {
    EvenPipeline pipeline;
    pipeline.layers = 2;
    pipeline.choice.modules = {Module::core_attn, Module::attn_proj};
    pipeline.choice.free = types::FreeOffload{{{Module::core_attn}}, reload_ahead, join_after};
    return pipeline;
}

// Forward: core_attn 0-1, attn_proj 1-2, the copy 1-3. Joined at attn_proj's commit, the main stream stands from 2 to
// 3; the other four kernels end at 7. Backward: layer 1 until 10, attn_proj 10-11. Reloaded when that is done,
// core_attn waits from 11 to 13 and the last kernel ends at 15.
TEST(StowagePolicyTimes, ShowsACopyThatIsJoinedAndReloadedTooLate) {
    const Prediction prediction = tests::run(two_layers(1, 1), quiet_node());
    EXPECT_EQ(prediction.step_time, 15us);
    EXPECT_EQ(prediction.ranks[0].steady.exposed_copy, 3us);
    EXPECT_EQ(prediction.record_time, 15us);  // the first iteration is like every other
}

// Reloaded one group earlier, when layer 1's core_attn is done at 9, it is there at 11.
TEST(StowagePolicyTimes, HidesAReloadThatRunsAhead) {
    const Prediction prediction = tests::run(two_layers(2, 1), quiet_node());
    EXPECT_EQ(prediction.step_time, 13us);
    EXPECT_EQ(prediction.ranks[0].steady.exposed_copy, 1us);
}

// Joined one commit later, at layer 1's core_attn, it is long done: twelve kernels, 12 us.
TEST(StowagePolicyTimes, CostsNothingIfBothRunBesideCompute) {
    const Prediction prediction = tests::run(two_layers(2, 2), quiet_node());
    EXPECT_EQ(prediction.step_time, 12us);
    EXPECT_EQ(prediction.ranks[0].steady.exposed_copy, 0us);
    EXPECT_EQ(prediction.ranks[0].steady.copied[0], 2_MiB);
    EXPECT_EQ(prediction.ranks[0].steady.copied[1], 2_MiB);
    EXPECT_EQ(prediction.ranks[0].steady.pinned_peak, 2_MiB);
}

// Slow kernels hide all copies. Of eight layers of 4 MiB six leave in each of four microbatches; one microbatch is in
// flight, so 24 MiB are away at a time and the device holds that much less.
TEST(StowagePolicyTimes, HoldsLessOnTheDeviceByWhatIsAway) {
    EvenPipeline pipeline;
    pipeline.layers = 8;
    pipeline.microbatches = 4;
    pipeline.forward_kernel = pipeline.backward_kernel = 100us;
    const Prediction without = tests::run(pipeline, quiet_node());
    pipeline.choice.modules = {Module::core_attn, Module::attn_proj};
    pipeline.choice.free = types::FreeOffload{std::vector(6, pipeline.choice.modules), 2, 2};
    const Prediction with = tests::run(pipeline, quiet_node());
    EXPECT_EQ(with.step_time, without.step_time);
    EXPECT_EQ(with.ranks[0].steady.pinned_peak, 24_MiB);
    EXPECT_EQ(with.ranks[0].steady.copied[0], 96_MiB);
    EXPECT_EQ(without.ranks[0].steady.peak_allocated - with.ranks[0].steady.peak_allocated, 24_MiB);
}

// Every stage of a pipeline takes the same choice; early ones have several microbatches away at once.
TEST(StowagePolicyTimes, RunsInAnInterleavedPipelineWithoutLosingAStep) {
    EvenPipeline pipeline;
    pipeline.stages = 4;
    pipeline.virtual_stages = 2;
    pipeline.microbatches = 8;
    pipeline.layers = 2;
    pipeline.forward_kernel = pipeline.backward_kernel = 100us;
    const Prediction without = tests::run(pipeline, quiet_node());
    pipeline.choice.modules = {Module::core_attn, Module::attn_proj};
    pipeline.choice.free = types::FreeOffload{std::vector(15, pipeline.choice.modules), 2, 2};
    const Prediction with = tests::run(pipeline, quiet_node());
    EXPECT_EQ(with.step_time, without.step_time);
    EXPECT_GT(with.ranks[0].steady.pinned_peak, with.ranks[3].steady.pinned_peak);
    EXPECT_LT(with.ranks[0].steady.peak_allocated, without.ranks[0].steady.peak_allocated);
}

}  // namespace
}  // namespace stowage::simulator
