#include "planner/search/duty.hpp"

#include <gtest/gtest.h>

#include "planner/program/duration_shares.hpp"
#include "planner/program/kernel_times.hpp"
#include "planner/search/alone.hpp"
#include "planner/search/candidates.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::search {
namespace {

/// The small model over four GPUs: tensor ranks, which wait for each other in every layer, or pipeline ranks.
types::Scenario four_gpus(bool tensor) {
    types::Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    scenario.parallel.pipeline_model_parallel_size = tensor ? 1 : 4;
    scenario.parallel.tensor_model_parallel_size = tensor ? 4 : 1;
    return scenario;
}

types::Scenario with_gain(types::Scenario scenario, double gain) {
    scenario.hardware.node.device.rates_by_duty = {{0.5, gain, gain}};
    return scenario;
}

Nanoseconds multiplying_time(const Job& job, double duty) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel, duty);
    return program::multiplying_time(job.stages[0], job.scenario.microbatches(), durations);
}

double share(Nanoseconds part, Nanoseconds whole) {
    return static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

double duty_with_rates_of(const Job& job, double duty) {
    const auto run = run_alone(job, make_choice(job, {}, 1), 0, duty, false);
    return share(multiplying_time(job, duty), run->prediction.steady.duration);
}

TEST(Duty, IsNotLookedAtWhereRatesDoNotFollowIt) {
    const Job job = prepare(four_gpus(true));
    EXPECT_EQ(job.duty(0), 1);
    EXPECT_LT(duty_with_rates_of(job, 1), 0.9) << "though it waits";
}

// The rates of a duty lead to that duty, to 0.004. A faster chip multiplies for less of its step than one at the
// device's own rates.
TEST(Duty, IsTheOneThatItsOwnRatesLeadTo) {
    const Job job = prepare(with_gain(four_gpus(true), 1.3));
    const double duty = job.duty(0);
    EXPECT_NEAR(duty_with_rates_of(job, duty), duty, kDutySettled);
    EXPECT_LT(duty, duty_with_rates_of(job, 1) - kDutySettled);
}

// What is left of a step's kernels without them, norms and the like, takes as long whatever the rates.
TEST(Duty, CountsGemmsAndAttention) {
    const Job job = prepare(with_gain(four_gpus(true), 1.3));
    const auto rest = [&](double duty) {
        const program::Durations durations(job.scenario.hardware, job.scenario.parallel, duty);
        const std::int64_t microbatches = job.scenario.microbatches();
        return program::duration_shares(job.stages[0], microbatches, durations).all.total() -
               program::multiplying_time(job.stages[0], microbatches, durations);
    };
    EXPECT_GT(rest(1), Nanoseconds{0});
    EXPECT_EQ(rest(1), rest(0.5));
    EXPECT_GT(multiplying_time(job, 1), multiplying_time(job, 0.5));
}

// With the gain g of the duty, what computes takes at least 1 / g of what it took: norms take as long as they did.
TEST(Duty, MakesAStepThatWaitsFaster) {
    const Job plain = prepare(four_gpus(true));
    const Job job = prepare(with_gain(four_gpus(true), 1.3));
    const Outcome slow = evaluate(plain, make_choice(plain, {}, 1));
    const Outcome fast = evaluate(job, make_choice(job, {}, 1));
    const double gain = program::rates_at_duty(job.scenario.hardware.node.device, job.duty(0)).gemm;
    const double compute = static_cast<double>(fast.ranks[0].compute.count());
    EXPECT_LT(fast.step_time, slow.step_time);
    EXPECT_LT(compute, static_cast<double>(slow.ranks[0].compute.count()));
    EXPECT_GT(compute, static_cast<double>(slow.ranks[0].compute.count()) / gain);
    EXPECT_EQ(fast.ranks[0].duty, job.duty(0));
}

TEST(Duty, OfASliceIsThatOfItsJob) {
    const Job job = prepare(with_gain(four_gpus(true), 1.3));
    const auto slice = evaluate_slice(job, make_choice(job, {}, 1), 0);
    ASSERT_TRUE(slice.has_value());
    EXPECT_EQ(slice->rank.duty, job.duty(0));
    EXPECT_NEAR(share(multiplying_time(job, job.duty(0)), slice->rank.step_time), job.duty(0), kDutySettled);
}

// Four pipeline ranks and eight microbatches: a rank stands still for 3 in 11 of a step, and its duty is 11 / 8 of what
// it multiplies for, but for the transfers.
TEST(Duty, LeavesOutAPipelinesBubble) {
    const Job job = prepare(with_gain(four_gpus(false), 1.3));
    const Outcome outcome = evaluate(job, make_choice(job, {}, 1));
    ASSERT_EQ(job.duties.size(), 4U);
    EXPECT_GT(job.duty(0), 1.25 * share(multiplying_time(job, job.duty(0)), outcome.step_time));
}

TEST(Duty, IsTheSameEveryTime) {
    const types::Scenario scenario = with_gain(four_gpus(false), 1.3);
    EXPECT_EQ(prepare(scenario).duties, prepare(scenario).duties);
}

}  // namespace
}  // namespace stowage::search
