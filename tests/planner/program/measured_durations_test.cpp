#include "planner/program/measured_durations.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/layers/stage.hpp"
#include "planner/program/duration_shares.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/made_recording.hpp"

namespace stowage::program {
namespace {

using layers::DurationSource;
using layers::Kernel;
using layers::Part;
using layers::Phase;
using layers::StageLayers;
using std::chrono::microseconds;
using tests::MadeRecording;
using types::Scenario;

Scenario scenario() {
    Scenario scenario = layers::testing::grouped_gpt();
    scenario.hardware.node.device.kernel_overhead = microseconds(1);
    return scenario;
}

Durations durations_of(const Scenario& scenario) { return {scenario.hardware, scenario.parallel}; }

MeasuredDurations measured(const recording::Recording& recording, const Scenario& scenario) {
    return {recorded_operations(recording, scenario.hardware.node), recording.sites, layers::build_stage(scenario, 0),
            durations_of(scenario)};
}

/// The first kernel of this name.
Kernel& kernel_of(StageLayers& stage, const std::string& name) {
    for (layers::LayerScript& script : stage.scripts)
        for (Kernel& kernel : script.kernels)
            if (kernel.name == name) return kernel;
    throw std::logic_error("no kernel " + name);
}

/// All take what is estimated, but for `name`, which takes `time`.
recording::Recording with_time(const Scenario& scenario, const std::string& name, Nanoseconds time,
                               const MadeRecording& made = {}) {
    const Durations durations = durations_of(scenario);
    return tests::made_recording(layers::build_stage(scenario, 0), made,
                                 [&](const Kernel& kernel, const KernelName& place, std::int64_t, std::int64_t) {
                                     return kernel.name == name ? time : durations.estimate(kernel, place.phase);
                                 });
}

TEST(MeasuredDurations, OfTheSameScenarioAreAllMeasured) {
    const Scenario job = scenario();
    const Durations durations = durations_of(job);
    StageLayers stage = layers::build_stage(job, 0);
    const recording::Recording recording =
        tests::recording_of_estimates(stage, {.microbatches = 4, .steps = 2, .gap = Nanoseconds{300}}, durations);
    const MeasuredDurations times = measured(recording, job);
    times.apply(stage, durations, true);
    EXPECT_EQ(times.differences(), std::vector<std::string>{});
    for (const layers::LayerScript& script : stage.scripts)
        for (const KernelPlace& place : kernel_places(script)) {
            const Kernel& kernel = script.kernels[place.kernel];
            EXPECT_EQ(kernel.source, DurationSource::measured) << kernel.name;
            EXPECT_EQ(kernel.measured, durations.estimate(kernel, place.name.phase)) << kernel.name;
            EXPECT_EQ(kernel.error, 0.0) << kernel.name;
        }
}

TEST(MeasuredDurations, AreTheMeanOfLayersMicrobatchesAndSteps) {
    // 100, 110, 120 and 130 us in the four layers of a first step, 2 us more in a second one: 116 in the mean, 115 and
    // 117 in the two steps, which are 1/116 off.
    const Scenario job = scenario();
    StageLayers stage = layers::build_stage(job, 0);
    const auto time = [&](const Kernel& kernel, const KernelName&, std::int64_t layer, std::int64_t step) {
        return kernel.name == "core_attn.forward" ? Nanoseconds{microseconds(100 + 10 * layer + 2 * step)}
                                                  : Nanoseconds{microseconds(10)};
    };
    const recording::Recording recording = tests::made_recording(stage, {.microbatches = 4, .steps = 2}, time);
    measured(recording, job).apply(stage, durations_of(job), true);
    const Kernel& kernel = kernel_of(stage, "core_attn.forward");
    EXPECT_EQ(kernel.measured, microseconds(116));
    EXPECT_NEAR(kernel.error.value(), 1.0 / 116, 1e-12);
}

TEST(MeasuredDurations, LeaveOutWhatSomethingElseDisturbed) {
    // Four microbatches of one layer: 100 us three times, and once 900.
    const Scenario job = scenario();
    StageLayers stage = layers::build_stage(job, 0);
    int seen = 0;
    const auto time = [&](const Kernel& kernel, const KernelName&, std::int64_t layer, std::int64_t) {
        const bool disturbed = kernel.name == "core_attn.forward" && layer == 0 && seen++ == 0;
        return Nanoseconds{microseconds(disturbed ? 900 : 100)};
    };
    const recording::Recording recording = tests::made_recording(stage, {.microbatches = 4}, time);
    measured(recording, job).apply(stage, durations_of(job), true);
    EXPECT_EQ(kernel_of(stage, "core_attn.forward").measured, microseconds(100));
}

TEST(MeasuredDurations, ScaleToOtherSizesByTheRatioOfEstimates) {
    // Attention's forward was recorded at three times its estimate. A sequence of twice the length is the same
    // operation in another size: it takes three times its own estimate (the recorded time is a whole number of
    // nanoseconds).
    const Scenario recorded = scenario();
    const Durations durations = durations_of(recorded);
    StageLayers recorded_stage = layers::build_stage(recorded, 0);
    const Kernel& recorded_kernel = kernel_of(recorded_stage, "core_attn.forward");
    const Nanoseconds estimate = durations.estimate(recorded_kernel, Phase::forward);
    Scenario longer = recorded;
    longer.batch.seq_length *= 2;
    StageLayers stage = layers::build_stage(longer, 0);
    measured(with_time(recorded, "core_attn.forward", 3 * estimate), recorded).apply(stage, durations_of(longer), true);
    const Kernel& kernel = kernel_of(stage, "core_attn.forward");
    EXPECT_EQ(kernel.source, DurationSource::scaled);
    EXPECT_EQ(kernel.measured, 3 * durations.estimate(kernel, Phase::forward));
    EXPECT_TRUE(kernel.error.has_value());
}

TEST(MeasuredDurations, StateTheSpreadOfTheirClassAsTheErrorOfScaling) {
    // GEMMs alternate between 1.1 and 1 / 1.1 of what is estimated: were all alike in time, the logarithm's standard
    // deviation would be ln 1.1 = 0.0953. Weighted by time it lies between nothing and that.
    const Scenario recorded = scenario();
    const Durations durations = durations_of(recorded);
    int gemms = 0;
    const auto time = [&](const Kernel& kernel, const KernelName& name, std::int64_t layer, std::int64_t) {
        const auto estimate = static_cast<double>(durations.estimate(kernel, name.phase).count());
        if (kernel.kind != types::KernelClass::gemm || layer != 0) return Nanoseconds{std::llround(estimate)};
        return Nanoseconds{std::llround(estimate * (++gemms % 2 == 0 ? 1.1 : 1 / 1.1))};
    };
    Scenario one_layer = recorded;
    one_layer.model.num_layers = 1;
    const MeasuredDurations times =
        measured(tests::made_recording(layers::build_stage(one_layer, 0), {}, time), one_layer);
    const ClassSpread& gemm = times.spread(types::KernelClass::gemm);
    EXPECT_GT(gemm.kernels, 8);
    EXPECT_GT(gemm.spread.value(), 0.05);
    EXPECT_LE(gemm.spread.value(), 0.0954);
    EXPECT_NEAR(times.spread(types::KernelClass::memory_bound).spread.value(), 0, 1e-9);
    EXPECT_NEAR(times.spread(types::KernelClass::memory_bound).ratio, 1, 1e-9);
}

TEST(MeasuredDurations, OfAnotherDeviceAreScaled) {
    // Memory of half the rate, no fixed cost: kernels bound by memory take twice as long.
    Scenario recorded = layers::testing::grouped_gpt();
    Scenario slower = recorded;
    slower.hardware.node.device.name = "slow";
    slower.hardware.node.device.memory_bandwidth.rate /= 2;
    StageLayers stage = layers::build_stage(slower, 0);
    measured(with_time(recorded, "mlp_act.forward", microseconds(50)), recorded)
        .apply(stage, durations_of(slower), false);
    const Kernel& kernel = kernel_of(stage, "mlp_act.forward");
    EXPECT_EQ(kernel.source, DurationSource::scaled);
    EXPECT_NEAR(static_cast<double>(kernel.measured->count()), 100'000, 50);  // estimates are whole nanoseconds
}

TEST(MeasuredDurations, OfAForwardServeWhatRunsItAgain) {
    // The recorded scenario recomputes nothing, the planned one attention.
    const Scenario recorded = scenario();
    Scenario again = recorded;
    again.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    again.recompute.recompute_modules = {types::RecomputeModule::core_attn};
    StageLayers stage = layers::build_stage(again, 0);
    measured(with_time(recorded, "core_attn.forward", microseconds(77)), recorded)
        .apply(stage, durations_of(again), true);
    int forwards = 0;
    int repeats = 0;
    for (const layers::LayerScript& script : stage.scripts)
        for (const KernelPlace& place : kernel_places(script)) {
            const Kernel& kernel = script.kernels[place.kernel];
            if (kernel.name != "core_attn.forward") continue;
            const bool repeat = place.name.phase == Phase::recompute;
            EXPECT_EQ(kernel.source, repeat ? DurationSource::recompute : DurationSource::measured);
            EXPECT_EQ(kernel.measured, microseconds(77));
            ++(repeat ? repeats : forwards);
        }
    EXPECT_EQ(forwards, 1);
    EXPECT_EQ(repeats, 1);
}

TEST(MeasuredDurations, LeaveWhatWasNotRecordedToTheEstimate) {
    // Layers without embedding and output layer were recorded.
    Scenario bare = scenario();
    bare.model.vocab_size = 0;
    StageLayers stage = layers::build_stage(scenario(), 0);
    const Durations durations = durations_of(bare);
    const recording::Recording recording =
        tests::recording_of_estimates(layers::build_stage(bare, 0), {.microbatches = 4}, durations);
    measured(recording, bare).apply(stage, durations, true);
    for (const layers::LayerScript& script : stage.scripts)
        for (const KernelPlace& place : kernel_places(script)) {
            const Kernel& kernel = script.kernels[place.kernel];
            if (script.kind == layers::ScriptKind::dense_layer) {
                EXPECT_EQ(kernel.source, DurationSource::measured) << kernel.name;
            } else if (place.name.part == Part::output_layer) {
                EXPECT_EQ(kernel.source, DurationSource::estimated) << kernel.name;
                EXPECT_EQ(kernel.measured, std::nullopt);
                EXPECT_NEAR(kernel.error.value(), 0, 1e-9);  // what was recorded takes what is estimated
            }
        }
}

TEST(MeasuredDurations, DoNotMixKindsOfLayers) {
    // A norm before attention stands in dense layers and in those with experts: the same work under the same name.
    const Scenario job = layers::testing::moe_gpt();
    StageLayers stage = layers::build_stage(job, 0);
    const auto time = [&](const Kernel&, const KernelName&, std::int64_t layer, std::int64_t) {
        return Nanoseconds{microseconds(layer == 0 ? 20 : 40)};  // layer 0 is the dense one
    };
    measured(tests::made_recording(stage, {.microbatches = 4}, time), job).apply(stage, durations_of(job), true);
    for (const layers::LayerScript& script : stage.scripts)
        for (const Kernel& kernel : script.kernels) {
            if (kernel.name != "attn_norm.forward") continue;
            EXPECT_EQ(kernel.measured, microseconds(script.kind == layers::ScriptKind::dense_layer ? 20 : 40));
        }
}

TEST(MeasuredDurations, TellWhatTheRecordingHasAndTheLayersDoNot) {
    const Scenario job = scenario();
    recording::Recording recording = tests::recording_of_estimates(layers::build_stage(job, 0), {}, durations_of(job));
    recording.sites.push_back({"core_attn", "forward", "something else"});
    recording.steps.front().events.back().site = static_cast<std::uint32_t>(recording.sites.size() - 1);
    const std::vector<std::string> differences = measured(recording, job).differences();
    ASSERT_EQ(differences.size(), 2U);
    EXPECT_NE(differences[0].find("not recorded: "), std::string::npos);
    EXPECT_NE(differences[1].find("core_attn forward \"something else\""), std::string::npos);
}

TEST(MeasuredDurations, KeepWhatAKernelAlreadyHas) {
    const Scenario job = scenario();
    StageLayers stage = layers::build_stage(job, 0);
    kernel_of(stage, "core_attn.forward").measured = microseconds(5);
    measured(with_time(job, "core_attn.forward", microseconds(77)), job).apply(stage, durations_of(job), true);
    EXPECT_EQ(kernel_of(stage, "core_attn.forward").measured, microseconds(5));
}

Kernel kernel(const char* name, Nanoseconds time, DurationSource source, std::optional<double> error) {
    Kernel kernel;
    kernel.name = name;
    kernel.measured = time;
    kernel.source = source;
    kernel.error = error;
    return kernel;
}

TEST(DurationShares, AddUpToTheKernelsOfAStep) {
    // Two kernels of 30 and 10 us in a layer of two, four microbatches, the first measured to 10 %, the second with no
    // known error: 240 us measured, of which 24 are uncertain, 80 estimated.
    layers::ScriptBuilder builder(layers::ScriptKind::dense_layer, "layer");
    builder.begin_forward(Part::core_attn);
    builder.kernel(kernel("a", microseconds(30), DurationSource::measured, 0.1));
    builder.part(Part::mlp_fc1);
    builder.kernel(kernel("b", microseconds(10), DurationSource::estimated, {}));
    builder.begin_backward(Part::core_attn);
    StageLayers stage;
    stage.scripts.push_back(builder.build());
    stage.chunks.push_back(
        {.order = {0, 0}, .layer_numbers = {0, 1}, .recomputed = {}, .reductions = {}, .gathers = {}});
    const Scenario job = scenario();
    const DurationShares shares = duration_shares(stage, 4, durations_of(job));
    EXPECT_EQ(shares.all.by_source[static_cast<std::size_t>(DurationSource::measured)], microseconds(240));
    EXPECT_EQ(shares.all.by_source[static_cast<std::size_t>(DurationSource::estimated)], microseconds(80));
    EXPECT_EQ(shares.all.uncertain, microseconds(24));
    EXPECT_EQ(shares.all.unknown, microseconds(80));
    EXPECT_NEAR(shares.all.error().value(), 0.1, 1e-12);
    EXPECT_EQ(shares.by_part.at(Part::core_attn).worst, DurationSource::measured);
    EXPECT_EQ(shares.by_part.at(Part::core_attn).worst_error, 0.1);
    EXPECT_EQ(shares.by_part.at(Part::mlp_fc1).worst, DurationSource::estimated);
    EXPECT_EQ(shares.by_part.at(Part::mlp_fc1).worst_error, std::nullopt);
}

TEST(DurationShares, CountAForwardThatRunsAgain) {
    layers::ScriptBuilder builder(layers::ScriptKind::dense_layer, "layer");
    builder.begin_forward(Part::core_attn);
    builder.kernel(kernel("a", microseconds(30), DurationSource::measured, 0.1));
    builder.begin_backward(Part::core_attn);
    StageLayers stage;
    stage.scripts.push_back(builder.build());
    stage.chunks.push_back(
        {.order = {0, 0}, .layer_numbers = {0, 1}, .recomputed = {{1, 1}}, .reductions = {}, .gathers = {}});
    const Scenario job = scenario();
    const DurationShares shares = duration_shares(stage, 1, durations_of(job));
    EXPECT_EQ(shares.all.by_source[static_cast<std::size_t>(DurationSource::measured)], microseconds(60));
    EXPECT_EQ(shares.all.by_source[static_cast<std::size_t>(DurationSource::recompute)], microseconds(30));
}

}  // namespace
}  // namespace stowage::program
