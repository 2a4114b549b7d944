// A job that plans from a recording, from its scenario to the step it predicts.

#include "planner/search/recording_use.hpp"

#include <gtest/gtest.h>

#include "planner/program/duration_shares.hpp"
#include "planner/search/job.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/made_recording.hpp"

namespace stowage::search {
namespace {

using layers::Kernel;
using layers::Part;
using std::chrono::microseconds;
using tests::MadeRecording;
using types::Module;
using types::ModuleSet;
using types::Scenario;

/// Four microbatches; kernels cost 1 us to start, the host takes no time.
Scenario scenario() {
    Scenario scenario = layers::testing::grouped_gpt();
    scenario.hardware.node.device.kernel_overhead = microseconds(1);
    scenario.hardware.node.device.memory = types::Bytes{1LL << 40};
    return scenario;
}

program::Durations durations_of(const Scenario& scenario) { return {scenario.hardware, scenario.parallel}; }

const MadeRecording kTwoSteps{.microbatches = 4, .steps = 2, .gap = Nanoseconds{400}};

recording::Recording estimates_of(const Scenario& scenario) {
    const Job job = prepare(scenario);
    return tests::recording_of_estimates(job.stages.front(), kTwoSteps, durations_of(scenario));
}

/// As estimated, but for a module, which takes so many times that.
recording::Recording with_module(const Scenario& scenario, Part part, std::int64_t times) {
    const Job job = prepare(scenario);
    const program::Durations durations = durations_of(scenario);
    return tests::made_recording(
        job.stages.front(), kTwoSteps,
        [&](const Kernel& kernel, const program::KernelName& name, std::int64_t, std::int64_t) {
            return (name.part == part ? times : 1) * durations.estimate(kernel, name.phase);
        });
}

Outcome outcome_with(const Scenario& scenario, const recording::Recording& recording, ModuleSet modules = {}) {
    Job job = prepare(scenario);
    apply_recording(job, recording, scenario);
    return evaluate(job, {.modules = modules, .min_offloaded_tensor_size = 1});
}

TEST(RecordingUse, OfTheModelsOwnEstimatesGivesTheModelsOwnStep) {
    const Scenario job = scenario();
    const Outcome estimated = evaluate(prepare(job), {});
    const Outcome measured = outcome_with(job, estimates_of(job));
    EXPECT_EQ(measured.step_time, estimated.step_time);
    EXPECT_EQ(measured.ranks.front().compute, estimated.ranks.front().compute);
}

// What was recorded ran at the clock of its own step: a duty that makes estimates faster changes nothing.
TEST(RecordingUse, LeavesRecordedTimesAloneWhateverTheDuty) {
    const Scenario plain = scenario();
    Scenario waiting = plain;
    waiting.hardware.node.device.rates_by_duty = {{0.9, 1.11, 1.11}, {0.95, 1.05, 1.05}};
    const recording::Recording recording = estimates_of(plain);
    ASSERT_LT(prepare(waiting).duty(0), 0.95);
    EXPECT_LT(evaluate(prepare(waiting), {}).step_time, evaluate(prepare(plain), {}).step_time);
    EXPECT_EQ(outcome_with(waiting, recording).step_time, outcome_with(plain, recording).step_time);
}

/// What a run of each rank's program records gives every kernel of that rank its own time back.
void expect_round_trip(const Scenario& scenario) {
    const Job job = prepare(scenario);
    const TracedOutcome traced = evaluate_traced(job, {});
    for (std::size_t rank = 0; rank < job.stages.size(); ++rank) {
        Job measured = job;
        apply_recording(measured, tests::recording_of_run(traced.programs[rank], traced.timelines[rank]), scenario);
        EXPECT_EQ(measured.recording->differences, std::vector<std::string>{}) << "rank " << rank;
        const program::DurationShares shares =
            program::duration_shares(measured.stages[rank], scenario.microbatches(), durations_of(scenario));
        EXPECT_LE(shares.all.worst, layers::DurationSource::recompute) << "rank " << rank;
        EXPECT_EQ(evaluate(measured, {}).ranks[rank].compute, traced.outcome.ranks[rank].compute) << "rank " << rank;
    }
}

TEST(RecordingUse, FindsEveryKernelOfARun) {
    expect_round_trip(scenario());
    expect_round_trip(layers::testing::plain_gpt());
    expect_round_trip(layers::testing::latent_gpt());
    expect_round_trip(layers::testing::moe_gpt());
    expect_round_trip(layers::testing::moe_slice());
    expect_round_trip(layers::testing::tensor_slice(4, true));
}

TEST(RecordingUse, FindsEveryKernelOfARunOfSeveralStagesAndWithAnOptimizer) {
    Scenario job = scenario();
    job.optimizer.optimizer = types::OptimizerKind::adam;
    job.parallel.pipeline_model_parallel_size = 2;
    expect_round_trip(job);
    job.parallel.num_virtual_stages_per_pipeline_rank = 2;
    expect_round_trip(job);
}

TEST(RecordingUse, FindsEveryKernelOfARunThatRecomputes) {
    Scenario job = scenario();
    job.recompute.recompute_granularity = types::RecomputeGranularity::full;
    job.recompute.recompute_method = types::RecomputeMethod::block;
    job.recompute.recompute_num_layers = 2;
    expect_round_trip(job);
    job.recompute = {};
    job.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    job.recompute.recompute_modules = {types::RecomputeModule::core_attn, types::RecomputeModule::mlp};
    expect_round_trip(job);
}

TEST(RecordingUse, TheRecordedStepIsThePredictedOne) {
    // The recording's kernels lie back to back; its last one has a gap behind it in the model, none in the recording.
    const Scenario job = scenario();
    const recording::Recording recording = with_module(job, Part::mlp_fc1, 3);
    EXPECT_EQ(outcome_with(job, recording).ranks.front().compute, recording.steps.front().duration + kTwoSteps.gap);
}

TEST(RecordingUse, OneModuleOfTwiceTheTimeChangesExactlyThat) {
    const Scenario job = scenario();
    const Job estimated = prepare(job);
    const program::DurationShares shares =
        program::duration_shares(estimated.stages.front(), job.microbatches(), durations_of(job));
    const Nanoseconds attention = shares.by_part.at(Part::core_attn).total();
    const Outcome before = evaluate(estimated, {});
    const Outcome after = outcome_with(job, with_module(job, Part::core_attn, 2));
    EXPECT_EQ(after.step_time - before.step_time, attention);
}

TEST(RecordingUse, ServesEveryModuleSubset) {
    // What moves does not change what the kernels take.
    const Scenario job = scenario();
    const recording::Recording recording = with_module(job, Part::core_attn, 2);
    const Outcome nothing = outcome_with(job, recording);
    const Outcome moved = outcome_with(job, recording, {Module::core_attn, Module::attn_proj});
    EXPECT_TRUE(moved.runs());
    EXPECT_GT(moved.offloaded_bytes(), types::Bytes{});
    EXPECT_GE(moved.step_time, nothing.step_time);
}

TEST(RecordingUse, OfOneRankServesAllRanks) {
    // Layers of rank 0 and of rank 1 do the same work; the output layer of rank 1 was not recorded.
    Scenario job = scenario();
    job.parallel.pipeline_model_parallel_size = 2;
    Job planned = prepare(job);
    const recording::Recording recording =
        tests::recording_of_estimates(planned.stages.front(), kTwoSteps, durations_of(job));
    apply_recording(planned, recording, job);
    const program::DurationShares first =
        program::duration_shares(planned.stages[0], job.microbatches(), durations_of(job));
    const program::DurationShares second =
        program::duration_shares(planned.stages[1], job.microbatches(), durations_of(job));
    EXPECT_EQ(first.all.worst, layers::DurationSource::measured);
    EXPECT_EQ(second.by_part.at(Part::core_attn).worst, layers::DurationSource::measured);
    EXPECT_EQ(second.by_part.at(Part::output_layer).worst, layers::DurationSource::estimated);
}

TEST(RecordingUse, SaysWhatTheRecordingWas) {
    const Scenario job = scenario();
    recording::Recording recording = estimates_of(job);
    recording.scenario_name = "grouped";
    recording.machine.device = "a GPU";
    recording.step_times = {microseconds(100), microseconds(100)};
    for (recording::Step& step : recording.steps) step.time = microseconds(101);
    Job planned = prepare(job);
    apply_recording(planned, recording, job);
    ASSERT_NE(planned.recording, nullptr);
    EXPECT_EQ(planned.recording->scenario, "grouped");
    EXPECT_EQ(planned.recording->device, "a GPU");
    EXPECT_EQ(planned.recording->steps, 2);
    EXPECT_LT(planned.recording->gap, kTwoSteps.gap);  // 1 us of recording is shared out over the kernels
    EXPECT_NEAR(planned.recording->recording_cost.value(), 0.01, 1e-12);
}

std::string refusal(const Scenario& scenario, const recording::Recording& recording, const Scenario& recorded) {
    Job job = prepare(scenario);
    try {
        apply_recording(job, recording, recorded);
    } catch (const types::InputError& error) {
        return error.what();
    }
    return "nothing";
}

TEST(RecordingUse, RefusesAnotherImplementation) {
    const Scenario job = scenario();
    recording::Recording recording = estimates_of(job);
    recording.implementation = "megatron";
    EXPECT_EQ(
        refusal(job, recording, job),
        "error: implementation: found 'megatron', expected 'stowage', that of the scenario that is planned\n"
        "hint: kernels of one implementation say nothing about those of another; write 'implementation: megatron' "
        "in the scenario, or plan without the recording");
}

TEST(RecordingUse, RefusesARankThatItsScenarioLacks) {
    const Scenario job = scenario();
    recording::Recording recording = estimates_of(job);
    recording.pipeline_rank = 1;
    EXPECT_EQ(refusal(job, recording, job), "error: pipeline_rank: found 1, expected 0 to 0, a rank of its scenario");
}

TEST(RecordingUse, RefusesARecordingWithoutAStepToMeasureBy) {
    const Scenario job = scenario();
    recording::Recording recording = estimates_of(job);
    for (recording::Step& step : recording.steps) step.graphs = true;
    EXPECT_EQ(refusal(job, recording, job),
              "error: steps: found 2, expected one that ran without graphs after the first and lost no record\n"
              "hint: record again with 'cuda_graph_impl: none' and nothing offloaded");
}

}  // namespace
}  // namespace stowage::search
