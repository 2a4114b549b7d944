// A faster link, more memory or fewer bytes never make the best plan worse: exactly so without interference, within
// 0.5 % with it.

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include "planner/search/candidates.hpp"
#include "planner/search/search.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/simulation_options.hpp"
#include "tests/support/small_jobs.hpp"

namespace stowage::search {
namespace {

using tests::SmallJob;

const simulator::SimulationOptions kPlain = tests::without_interference();
const simulator::SimulationOptions kInterfering{};

Plan plan_of(const Job& job, const simulator::SimulationOptions& simulation) {
    SearchOptions options;
    options.simulation = simulation;
    options.threads = 1;
    return make_plan(job, options);
}

/// How often a job had a plan to compare.
struct Tally {
    int comparisons = 0;
};

void compare(const Job& job, const Job& better, const simulator::SimulationOptions& simulation, double allowed,
             Tally& tally) {
    const Plan before = plan_of(job, simulation), after = plan_of(better, simulation);
    if (!before.chosen) return;
    ++tally.comparisons;
    ASSERT_TRUE(after.chosen.has_value()) << "lost " << before.chosen->choice.modules.joined();
    EXPECT_LE(static_cast<double>(after.chosen->step_time.count()),
              (1 + allowed) * static_cast<double>(before.chosen->step_time.count()));
}

void expect_compared(const Tally& tally) {
    std::cout << tally.comparisons << " plans compared\n";
    EXPECT_GE(tally.comparisons, 10);
}

Job faster(const SmallJob& small, Job job, double factor) {
    SmallJob changed = small;
    changed.copy_gb_per_s *= factor;
    job.scenario.hardware.node = tests::small_node(changed);
    return job;
}

/// A limit around the peak without offloading, mostly below it.
Bytes some_limit(const Job& job, std::mt19937_64& random) {
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1), kPlain);
    const RankOutcome& rank = nothing.fullest_rank();
    const double share = 0.7 + static_cast<double>(random() % 35) / 100;
    return Bytes{static_cast<std::int64_t>(share * static_cast<double>(rank.peak_reserved().count))};
}

enum class Sizes { as_drawn, large };

/// Of a tensor below 10 MiB the caching allocator reserves 20 MiB, so that half the bytes can reserve more. Tensors
/// that are large before and after being halved have segments of their own, and nothing is rounded.
void enlarge(SmallJob& small) {
    for (std::int64_t* elements :
         {&small.layer.core_attn_elements, &small.layer.attn_proj_elements, &small.layer.boundary_elements})
        *elements *= 128;  // at least 64 MiB each
}

/// Runs `check` on random jobs, each printed by its seed and round.
template <class Check>
void for_random_jobs(std::uint64_t fixed_seed, int rounds, Sizes sizes, Check&& check) {
    const std::uint64_t seed = tests::property_seed(fixed_seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < rounds; ++round) {
        SmallJob small = tests::random_small_job(random);
        small.microbatches = std::min<std::int64_t>(small.microbatches, 3);
        if (small.experts) small.fixed_fraction = 1;
        if (sizes == Sizes::large) enlarge(small);
        const bool transformer = sizes == Sizes::as_drawn && round % 10 == 9;
        if (transformer) small.layers_per_stage = 2;
        Job job = transformer ? tests::transformer_job(small) : tests::synthetic_job(small);
        job.scenario.limits.device_memory = some_limit(job, random);
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        check(small, job);
    }
}

Job roomier(Job job, double factor) {
    const auto limit = static_cast<double>(job.scenario.limits.device_memory->count);
    job.scenario.limits.device_memory = Bytes{static_cast<std::int64_t>(factor * limit)};
    return job;
}

constexpr int kRounds = 80;

TEST(Optimum, IsNoWorseOnAFasterLink) {
    Tally tally;
    for_random_jobs(20261202, kRounds, Sizes::as_drawn, [&](const SmallJob& small, const Job& job) {
        for (const double factor : {1.25, 3.0}) compare(job, faster(small, job, factor), kPlain, 0, tally);
    });
    expect_compared(tally);
}

TEST(Optimum, IsNoWorseWithMoreMemory) {
    Tally tally;
    for_random_jobs(20261203, kRounds, Sizes::as_drawn, [&](const SmallJob&, const Job& job) {
        for (const double factor : {1.05, 1.2, 1.5}) compare(job, roomier(job, factor), kPlain, 0, tally);
    });
    expect_compared(tally);
}

TEST(Optimum, IsNoWorseWithFewerBytes) {
    Tally tally;
    for_random_jobs(20261204, kRounds, Sizes::large, [&](const SmallJob&, const Job& job) {
        compare(job, tests::with_half_the_bytes(job), kPlain, 0, tally);
    });
    expect_compared(tally);
}

TEST(Optimum, IsAtMostHalfAPercentWorseUnderInterference) {
    Tally tally;
    for_random_jobs(20261205, kRounds, Sizes::large, [&](const SmallJob& small, const Job& job) {
        compare(job, faster(small, job, 1.25), kInterfering, 0.005, tally);
        compare(job, faster(small, job, 3), kInterfering, 0.005, tally);
        compare(job, roomier(job, 1.2), kInterfering, 0.005, tally);
        compare(job, tests::with_half_the_bytes(job), kInterfering, 0.005, tally);
    });
    expect_compared(tally);
}

}  // namespace
}  // namespace stowage::search
