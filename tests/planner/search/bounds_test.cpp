// What a bound promises, held against the simulation of random choices for random jobs.

#include "planner/search/bounds.hpp"

#include <gtest/gtest.h>

#include <random>

#include "planner/search/candidates.hpp"
#include "tests/support/exhaustive_plan.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/simulation_options.hpp"
#include "tests/support/small_jobs.hpp"

namespace stowage::search {
namespace {

using tests::SmallJob;

void expect_below(const Job& job, const OffloadChoice& choice, const simulator::SimulationOptions& options,
                  const Outcome& nothing) {
    const Outcome outcome = evaluate(job, choice, options);
    if (!outcome.runs()) return;
    SCOPED_TRACE(choice.modules.joined() + " at " + std::to_string(choice.fraction));
    const FlaggedGroups flagged = flagged_groups(job, choice);
    EXPECT_LE(least_step_time(job, nothing, flagged), outcome.step_time);
    const std::vector<Bytes> peaks = least_peaks(job, nothing, flagged);
    ASSERT_EQ(peaks.size(), outcome.ranks.size());
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
        EXPECT_LE(peaks[rank], outcome.ranks[rank].steady_peak_allocated) << "rank " << rank;
        EXPECT_GE(peaks[rank], outcome.ranks[rank].static_bytes) << "rank " << rank;
    }
}

void try_choices(const Job& job, std::mt19937_64& random) {
    const auto options = random() % 2 == 0 ? simulator::SimulationOptions{} : tests::without_interference();
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1), options);
    const auto choices = tests::every_choice(job);
    for (int i = 0; i < 8; ++i) expect_below(job, choices[random() % choices.size()], options, nothing);
}

TEST(Bounds, NeverExceedWhatTheSimulationGives) {
    const std::uint64_t seed = tests::property_seed(20261129);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 60; ++round) {
        SmallJob small = tests::random_small_job(random);
        if (random() % 3 == 0) small.delta_bytes = static_cast<std::int64_t>(random() % (64 << 20));
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        try_choices(tests::synthetic_job(small), random);
        if (round % 4 == 0) try_choices(tests::transformer_job(small), random);
    }
}

TEST(Bounds, CountTheCopiesOfAllMicrobatchesButOne) {
    // One stage, three layers, core_attn of 2 MiB: the last layer stays, so two copies a microbatch; at 2 GB/s plus 1
    // us each takes 1000 + 2097152 / 2 ns. Four microbatches, of which the first may keep more.
    SmallJob small;
    small.layers_per_stage = 3;
    small.microbatches = 4;
    small.copy_gb_per_s = 2;
    small.layer.kernel = Nanoseconds{1000};
    const Job job = tests::synthetic_job(small);
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1));
    const FlaggedGroups flagged = flagged_groups(job, make_choice(job, {types::Module::core_attn}, 1));
    EXPECT_EQ(flagged.bytes_per_microbatch, Bytes{3 * (2 << 20)});
    EXPECT_EQ(least_step_time(job, nothing, flagged), Nanoseconds{3 * 2 * (1000 + 1048576)});
}

TEST(Bounds, ClaimNoCopyOfRanksWhereTheDeltaKeepsGroups) {
    SmallJob small;
    small.stages = 2;
    small.layers_per_stage = 3;
    small.microbatches = 4;
    small.delta_bytes = 1;
    const Job job = tests::synthetic_job(small);
    const FlaggedGroups flagged = flagged_groups(job, make_choice(job, {types::Module::core_attn}, 1));
    EXPECT_GT(flagged.copy_time[0], Nanoseconds{0});
    EXPECT_EQ(flagged.copy_time[1], Nanoseconds{0});
}

TEST(Bounds, KeepTheStepWithoutCopiesAsTheLeast) {
    const Job job = tests::synthetic_job({});
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1));
    EXPECT_EQ(least_step_time(job, nothing, flagged_groups(job, make_choice(job, {}, 1))), nothing.step_time);
}

}  // namespace
}  // namespace stowage::search
