// Plans of small jobs against a search that tries everything, and what a plan says about itself.

#include "planner/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>

#include "planner/search/baselines.hpp"
#include "planner/search/candidates.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/support/exhaustive_plan.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/small_jobs.hpp"

namespace stowage::search {
namespace {

using tests::SmallJob;
using types::Module;
using types::ModuleSet;
using types::literals::operator""_MiB;

/// Sets the limit between the smallest peak that some choice has and the peak without offloading, `share` of the way.
void limit_memory(Job& job, double share) {
    job.scenario.limits.device_memory.reset();
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1));
    Bytes least = nothing.fullest_rank().peak_reserved();
    for (const OffloadChoice& choice : tests::every_choice(job)) {
        if (choice.fraction < 1) continue;
        const Outcome outcome = evaluate(job, choice);
        if (outcome.runs()) least = std::min(least, outcome.fullest_rank().peak_reserved());
    }
    const Bytes most = nothing.fullest_rank().peak_reserved();
    job.scenario.limits.device_memory =
        least + Bytes{static_cast<std::int64_t>(share * static_cast<double>((most - least).count))};
}

/// Four stages of four layers of 24 MiB, six microbatches; with a limit that is not met without offloading.
Job crowded_job() {
    SmallJob small;
    small.stages = 4;
    small.layers_per_stage = 4;
    small.microbatches = 6;
    small.layer.core_attn_elements = 8 << 20;
    small.layer.attn_proj_elements = 4 << 20;
    small.layer.kernel = Nanoseconds{400'000};
    Job job = tests::synthetic_job(small);
    limit_memory(job, 0.5);
    return job;
}

void expect_same(const Outcome& left, const Outcome& right) {
    EXPECT_EQ(left.choice, right.choice);
    EXPECT_EQ(left.step_time, right.step_time);
    EXPECT_EQ(left.record_time, right.record_time);
    EXPECT_EQ(left.offloaded_bytes(), right.offloaded_bytes());
    ASSERT_EQ(left.ranks.size(), right.ranks.size());
    for (std::size_t i = 0; i < left.ranks.size(); ++i) {
        EXPECT_EQ(left.ranks[i].peak_allocated(), right.ranks[i].peak_allocated());
        EXPECT_EQ(left.ranks[i].peak_reserved(), right.ranks[i].peak_reserved());
        EXPECT_EQ(left.ranks[i].exposed_copy, right.ranks[i].exposed_copy);
    }
}

void expect_same(const Plan& left, const Plan& right) {
    EXPECT_EQ(left.verdict, right.verdict);
    ASSERT_EQ(left.chosen.has_value(), right.chosen.has_value());
    if (left.chosen) expect_same(*left.chosen, *right.chosen);
    ASSERT_EQ(left.smallest.has_value(), right.smallest.has_value());
    if (left.smallest) expect_same(*left.smallest, *right.smallest);
    EXPECT_EQ(left.limited_by, right.limited_by);
    EXPECT_EQ(left.certificate.simulated, right.certificate.simulated);
    EXPECT_EQ(left.certificate.pruned, right.certificate.pruned);
    ASSERT_EQ(left.baselines.size(), right.baselines.size());
    for (std::size_t i = 0; i < left.baselines.size(); ++i)
        expect_same(left.baselines[i].outcome, right.baselines[i].outcome);
}

/// Result: the verdict, so that a test can see that it met every kind.
PlanVerdict expect_optimal(const Job& job) {
    const Plan plan = make_plan(job);
    const tests::Exhaustive all = tests::exhaustive_plan(job);
    EXPECT_TRUE(plan.certificate.complete);
    const bool looked_no_further = plan.verdict == PlanVerdict::nothing_to_do;
    EXPECT_EQ(plan.certificate.simulated + plan.certificate.pruned,
              looked_no_further ? 0 : plan.certificate.candidates);
    EXPECT_EQ(plan.chosen.has_value(), all.best.has_value());
    if (!plan.chosen || !all.best) {
        EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
        EXPECT_GT(plan.smallest->fullest_rank().peak_reserved(), job.scenario.device_memory_limit());
        EXPECT_GE(plan.smallest->fullest_rank().peak_reserved(), all.smallest_peak);
        return plan.verdict;
    }
    expect_same(*plan.chosen, *all.best);
    EXPECT_LE(plan.certificate.lower_bound, plan.chosen->step_time);
    EXPECT_GE(plan.certificate.gap, 0);
    EXPECT_EQ(plan.verdict, all.best->choice.modules.empty() ? PlanVerdict::nothing_to_do : PlanVerdict::plan);
    return plan.verdict;
}

TEST(Search, EqualsBruteForceOnSyntheticJobs) {
    const std::uint64_t seed = tests::property_seed(20261130);
    std::mt19937_64 random(seed);
    std::map<PlanVerdict, int> verdicts;
    for (int round = 0; round < 60; ++round) {
        SmallJob small = tests::random_small_job(random);
        if (random() % 4 == 0) small.delta_bytes = static_cast<std::int64_t>(random() % (64 << 20));
        Job job = tests::synthetic_job(small);
        limit_memory(job, static_cast<double>(random() % 11) / 10 - 0.05);
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        ++verdicts[expect_optimal(job)];
    }
    std::cout << verdicts[PlanVerdict::plan] << " plans, " << verdicts[PlanVerdict::nothing_to_do]
              << " with nothing to do, " << verdicts[PlanVerdict::infeasible] << " infeasible\n";
}

TEST(Search, EqualsBruteForceOnTransformers) {
    const std::uint64_t seed = tests::property_seed(20261201);
    std::mt19937_64 random(seed);
    int plans = 0;
    for (int round = 0; round < 6; ++round) {
        SmallJob small = tests::random_small_job(random);
        small.layers_per_stage = 2 + round % 2;
        small.stages = 2 + round % 2;
        small.microbatches = 3;
        small.experts = round % 3 == 2;
        if (small.experts) small.fixed_fraction = round == 2 ? 1 : 0.7;
        Job job = tests::transformer_job(small);
        limit_memory(job, 0.2 + static_cast<double>(random() % 8) / 10);
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        plans += expect_optimal(job) == PlanVerdict::plan ? 1 : 0;
    }
    EXPECT_GE(plans, 3);
}

TEST(Search, GivesTheSamePlanOnAnyNumberOfThreadsAndEveryTime) {
    const Job job = crowded_job();
    auto on = [&](unsigned threads) {
        SearchOptions options;
        options.threads = threads;
        return make_plan(job, options);
    };
    const Plan plan = on(1);
    EXPECT_EQ(plan.verdict, PlanVerdict::plan);
    EXPECT_GT(plan.certificate.simulated, 1);
    for (const unsigned threads : {1U, 2U, 4U, 0U}) expect_same(plan, on(threads));
}

TEST(Search, HasNothingToDoWhenEverythingFits) {
    const Plan plan = make_plan(tests::synthetic_job({}));
    EXPECT_EQ(plan.verdict, PlanVerdict::nothing_to_do);
    ASSERT_TRUE(plan.chosen);
    EXPECT_TRUE(plan.chosen->choice.modules.empty());
    EXPECT_EQ(plan.chosen->offloaded_bytes(), Bytes{0});
    EXPECT_EQ(plan.certificate.simulated, 0);
    EXPECT_EQ(plan.certificate.gap, 0);
    EXPECT_EQ(plan.floor.schedule, plan.chosen->step_time);
}

TEST(Search, SaysWhatIsOverWhichLimitWhenNothingFits) {
    Job job = tests::synthetic_job({});
    job.scenario.limits.device_memory = 16_MiB;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    EXPECT_FALSE(plan.chosen);
    ASSERT_TRUE(plan.smallest);
    const Bytes peak = plan.smallest->fullest_rank().peak_reserved();
    EXPECT_LE(peak, plan.baselines.front().outcome.fullest_rank().peak_reserved());
    EXPECT_EQ(plan.limited_by.find("device memory of pipeline rank 0:"), 0U) << plan.limited_by;
    EXPECT_NE(plan.limited_by.find("over the limit of 0.02 GiB"), std::string::npos) << plan.limited_by;
    EXPECT_EQ(plan.device_limit, 16_MiB);
}

TEST(Search, SaysSoWhenPinnedMemoryIsWhatLimits) {
    Job job = crowded_job();
    job.scenario.limits.host_memory_per_node = 1_MiB;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    for (const Baseline& baseline : plan.baselines) EXPECT_FALSE(baseline.fits);
    EXPECT_FALSE(plan.limited_by.empty());
}

TEST(Search, TakesTheModulesAndTheFractionThatAreAskedFor) {
    Job job = tests::synthetic_job({});
    job.scenario.offload.offload_modules = ModuleSet{Module::core_attn};
    job.scenario.offload.activation_offload_fraction = 1;
    const Plan plan = make_plan(job);  // though nothing would have to move
    EXPECT_EQ(plan.verdict, PlanVerdict::plan);
    EXPECT_EQ(plan.chosen->choice.modules, ModuleSet{Module::core_attn});
    EXPECT_EQ(plan.chosen->choice.fraction, 1);
    EXPECT_EQ(plan.certificate.candidates, 1);
}

TEST(Search, JudgesModulesThatAreAskedForByThemselves) {
    // Offloading a module costs memory here (buffers of the reload stream beside the cache of the main one): with the
    // limit at the peak without offloading, the asked-for module does not fit, and the text says what it lacks.
    SmallJob small;
    small.layers_per_stage = 3;
    small.copy_gb_per_s = 1;
    Job job = tests::synthetic_job(small);
    job.scenario.offload.offload_modules = ModuleSet{Module::core_attn};
    job.scenario.offload.activation_offload_fraction = 1;
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1));
    const Outcome asked = evaluate(job, make_choice(job, {Module::core_attn}, 1));
    ASSERT_GT(asked.ranks[0].peak_allocated(), Bytes{0});
    job.scenario.limits.device_memory =
        std::min(nothing.fullest_rank().peak_allocated(), asked.ranks[0].peak_allocated()) - 2_MiB;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    EXPECT_EQ(plan.smallest->choice.modules, ModuleSet{Module::core_attn});
    EXPECT_EQ(plan.limited_by.find("device memory"), 0U) << plan.limited_by;
}

TEST(Search, NamesWhatWouldRunAtTheEdgeWhenNothingFits) {
    // A slow link: blocks wait for their copies while new segments are reserved beside them, so the reserved peak is
    // above the allocated one. A limit between the two fits no plan, and PyTorch would run there by giving its cache
    // back.
    SmallJob small;
    small.layers_per_stage = 4;
    small.microbatches = 3;
    small.copy_gb_per_s = 5;
    Job job = tests::synthetic_job(small);
    job.scenario.offload.offload_modules = ModuleSet{Module::core_attn};
    job.scenario.offload.activation_offload_fraction = 1;
    const Outcome free = evaluate(job, make_choice(job, {Module::core_attn}, 1));
    ASSERT_GT(free.fullest_rank().peak_reserved(), free.largest_allocated());
    job.scenario.limits.device_memory = free.fullest_rank().peak_reserved() - Bytes{1};
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    ASSERT_TRUE(plan.edge.has_value());
    EXPECT_EQ(plan.edge->choice.modules, ModuleSet{Module::core_attn});
    EXPECT_GE(plan.edge->step_time, free.step_time);
    EXPECT_LE(plan.edge->fullest_rank().peak_reserved(), job.scenario.device_memory_limit());
    ASSERT_FALSE(plan.notes.empty());
    EXPECT_EQ(plan.notes.back().find("at the edge: with core_attn at fraction 1 it would run"), 0U);
    job.scenario.limits.device_memory = free.largest_allocated() - Bytes{1};
    EXPECT_FALSE(make_plan(job).edge.has_value());
}

TEST(Search, PlansWithinTheHardwareWhateverTheLimitSays) {
    Job job = tests::synthetic_job({});
    const Bytes there = job.scenario.hardware.node.device.memory;
    job.scenario.limits.device_memory = there + 1024_MiB;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.device_limit, there);
    ASSERT_EQ(plan.notes.size(), 1U);
    EXPECT_EQ(plan.notes[0].find("limits.device_memory: "), 0U) << plan.notes[0];
}

TEST(Search, SaysThatNothingHelpsWhereTheStatesAloneAreTooMuch) {
    Job job = tests::transformer_job({});
    job.scenario.limits.device_memory = evaluate(job, make_choice(job, {}, 1)).ranks[0].static_bytes - Bytes{1};
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    EXPECT_NE(plan.limited_by.find("no offloading of activations helps"), std::string::npos) << plan.limited_by;
}

TEST(Search, FindsTheSmallestPeakOfAllThoughItStopsLargeOnesEarly) {
    SmallJob small;
    small.layers_per_stage = 8;
    small.copy_gb_per_s = 1000;  // copies are done before the host goes on, so that offloading lowers the peak
    small.kernel_launch = std::chrono::milliseconds{2};
    small.layer.core_attn_elements = 64 << 20;
    small.layer.attn_proj_elements = 64 << 20;
    small.layer.kernel = std::chrono::milliseconds{1};
    Job job = tests::synthetic_job(small);
    job.scenario.limits.device_memory = evaluate(job, make_choice(job, {}, 1)).ranks[0].static_bytes + 1_MiB;
    const Plan plan = make_plan(job);
    ASSERT_EQ(plan.verdict, PlanVerdict::infeasible);
    EXPECT_FALSE(plan.smallest->choice.modules.empty());
    EXPECT_EQ(plan.smallest->fullest_rank().peak_reserved(), tests::exhaustive_plan(job).smallest_peak);
}

TEST(Search, TellsItsProgressUpToTheEnd) {
    SmallJob small;
    Job job = tests::synthetic_job(small);
    job.scenario.limits.device_memory =
        evaluate(job, make_choice(job, {}, 1)).fullest_rank().peak_reserved() - Bytes{1};
    std::vector<std::pair<std::int64_t, std::int64_t>> told;
    SearchOptions options;
    options.progress = [&](std::int64_t done, std::int64_t all) { told.emplace_back(done, all); };
    const Plan plan = make_plan(job, options);
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back(), std::pair(plan.certificate.candidates, plan.certificate.candidates));
}

TEST(Search, PlansModulesThatMoveNothingAsAskedFor) {
    Job job = tests::transformer_job({});
    job.scenario.offload.offload_modules = ModuleSet{Module::moe_act};  // a model without experts
    job.scenario.offload.activation_offload_fraction = 1;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::plan);
    EXPECT_EQ(plan.chosen->offloaded_bytes(), Bytes{0});
    EXPECT_EQ(plan.chosen->step_time, plan.certificate.lower_bound);
}

TEST(Search, RefusesModulesThatARuleForbids) {
    Job job = tests::synthetic_job({});
    job.scenario.offload.offload_modules = ModuleSet{Module::attn_proj};
    job.scenario.offload.activation_offload_fraction = 1;
    const Plan plan = make_plan(job);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
    ASSERT_EQ(plan.rejections.size(), 1U);
    EXPECT_EQ(plan.rejections[0].rule, "O4");
    EXPECT_EQ(plan.limited_by, "no legal choice");
}

TEST(Search, ListsOnlyTheSmallestCombinationThatBreaksARule) {
    const CandidateSpace space = enumerate(tests::transformer_job({}));
    std::int64_t projections = 0;
    for (const Rejection& rejection : space.rejections) projections += rejection.rule == "O4" ? 1 : 0;
    EXPECT_EQ(projections, 1);
    for (const OffloadChoice& choice : space.candidates)
        EXPECT_TRUE(!choice.modules.contains(Module::attn_proj) || choice.modules.contains(Module::core_attn));
}

TEST(Search, LooksAtChoicesThatFlagTheSameGroupsOnce) {
    // Two layers, one module: two groups. The fraction keeps trunc(2 (1 - f)) of them, one at 0.5 and below, none
    // above. Of the first microbatch, where one group stays anyway, it keeps none.
    SmallJob small;
    Job job = tests::synthetic_job(small);
    job.scenario.offload.offload_modules = ModuleSet{Module::core_attn};
    const CandidateSpace space = enumerate(job);
    std::vector<double> fractions;
    for (const OffloadChoice& choice : space.candidates) fractions.push_back(choice.fraction);
    EXPECT_EQ(fractions, (std::vector<double>{0.5, 1}));
}

TEST(Search, StopsAtTheTimeLimitAndSaysSo) {
    SearchOptions options;
    options.time_limit_seconds = 0;
    const Plan plan = make_plan(crowded_job(), options);
    EXPECT_FALSE(plan.certificate.complete);
    EXPECT_EQ(plan.certificate.simulated, 0);
    EXPECT_EQ(plan.verdict, PlanVerdict::infeasible);
}

TEST(Search, RefusesTheObjectiveThatItCannotPlan) {
    Job job = tests::synthetic_job({});
    job.scenario.objective = types::Objective::memory;
    EXPECT_THROW(make_plan(job), types::UnsupportedError);
}

TEST(Baselines, AreWhatTheirNamesSay) {
    const Job job = crowded_job();
    const Plan plan = make_plan(job);
    ASSERT_EQ(plan.baselines.size(), 4U);
    const ModuleSet both{Module::core_attn, Module::attn_proj};

    const Baseline& nothing = plan.baselines[0];
    EXPECT_EQ(nothing.name, "nothing");
    EXPECT_EQ(nothing.outcome.offloaded_bytes(), Bytes{0});
    EXPECT_FALSE(nothing.fits);

    const Baseline& everything = plan.baselines[1];
    EXPECT_EQ(everything.name, "everything");
    EXPECT_EQ(everything.outcome.choice.modules, both);
    EXPECT_EQ(everything.outcome.choice.fraction, 1);

    const Baseline& first = plan.baselines[2];
    EXPECT_EQ(first.name, "first_n_percent");
    EXPECT_EQ(first.outcome.choice.modules, both);
    EXPECT_LE(first.outcome.choice.fraction, 1);
    EXPECT_EQ(first.description,
              "all modules, fraction " +
                  std::string(first.outcome.choice.fraction == 1
                                  ? "1"
                                  : "0." + std::to_string(std::lround(first.outcome.choice.fraction * 10))));

    const Baseline& largest = plan.baselines[3];
    EXPECT_EQ(largest.name, "largest_first");
    EXPECT_TRUE(largest.outcome.choice.modules.contains(Module::core_attn));  // 16 MiB against 8
    EXPECT_EQ(largest.outcome.choice.fraction, 1);

    for (const Baseline& baseline : plan.baselines) {
        EXPECT_EQ(baseline.fits, fits(job, baseline.outcome));
        if (baseline.fits) {
            EXPECT_LE(plan.chosen->step_time, baseline.outcome.step_time) << baseline.name;
        }
    }
}

// Two of four layers are not recomputed and have offload sites, but Megatron's manager meets them in another order in
// the second forward: nothing can move.
TEST(Baselines, OfFullRecomputationMoveNothing) {
    SmallJob small;
    small.layers_per_stage = 4;
    types::Scenario scenario = tests::transformer_job(small).scenario;
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::full;
    scenario.recompute.recompute_method = types::RecomputeMethod::block;
    scenario.recompute.recompute_num_layers = 2;
    scenario.offload.offload_modules = ModuleSet{};
    const Plan plan = make_plan(prepare(std::move(scenario)));
    EXPECT_TRUE(plan.chosen->choice.modules.empty());
    ASSERT_EQ(plan.baselines.size(), 1U);
    EXPECT_EQ(plan.baselines[0].name, "nothing");
}

// Interleaved stages post their receives ahead. A rank whose memory is full when the allocator wants to give its cache
// back waits for the device, which waits for a neighbour: the neighbour goes on, then the rank does.
TEST(Evaluate, WaitsForANeighbourWhereTheAllocatorWaitsForTheDevice) {
    SmallJob small;
    small.layers_per_stage = 4;
    small.stages = 4;
    small.microbatches = 8;
    types::Scenario scenario = tests::transformer_job(small).scenario;
    scenario.parallel.num_virtual_stages_per_pipeline_rank = 2;
    const Job job = prepare(std::move(scenario));
    const OffloadChoice choice = make_choice(job, ModuleSet{Module::core_attn, Module::attn_proj}, 1);
    const Outcome roomy = evaluate(job, choice);
    std::int64_t flushes = 0;
    for (Bytes limit = roomy.fullest_rank().peak_reserved(); limit.count > 0; limit = limit - 2_MiB) {
        simulator::SimulationOptions options;
        options.device_memory = limit;
        const Outcome outcome = evaluate(job, choice, options);
        if (!outcome.runs()) break;
        EXPECT_EQ(outcome.offloaded_bytes(), roomy.offloaded_bytes());
        for (const RankOutcome& rank : outcome.ranks) {
            EXPECT_LE(rank.peak_reserved(), limit);
            flushes += rank.cache_flushes;
        }
    }
    EXPECT_GT(flushes, 0);
}

/// The step with nothing offloaded if a GEMM takes the host 10 ms, longer than it takes the device.
Nanoseconds step_with_slow_calls(Job job) {
    job.scenario.hardware.node.host.gemm_call = Nanoseconds{10'000'000};
    return evaluate(job, make_choice(job, {}, 1)).step_time;
}

// What Megatron's calls take is in what the framework adds to each kernel.
TEST(Evaluate, ChargesLibraryCallsToOurOwnLayersOnly) {
    const Job megatrons = tests::transformer_job({});
    EXPECT_EQ(step_with_slow_calls(megatrons), evaluate(megatrons, make_choice(megatrons, {}, 1)).step_time);
    const Job own = prepare(reader::load_scenario(STOWAGE_SOURCE_DIR "/tests/data/small_stowage.yaml").scenario);
    EXPECT_GT(step_with_slow_calls(own), 2 * evaluate(own, make_choice(own, {}, 1)).step_time);
}

TEST(Evaluate, HoldsEveryMicrobatchsBytesByModule) {
    // Two stages of three layers, four microbatches. Stage 0 has one warm-up forward: the last group of a module stays
    // where the microbatch's backward is the next one.
    SmallJob small;
    small.stages = 2;
    small.layers_per_stage = 3;
    small.microbatches = 4;
    const Job job = tests::synthetic_job(small);
    const Outcome outcome = evaluate(job, make_choice(job, {Module::core_attn}, 1));
    ASSERT_EQ(outcome.ranks.size(), 2U);
    for (const RankOutcome& rank : outcome.ranks) {
        const Bytes moved = rank.offloaded.bytes[static_cast<std::size_t>(Module::core_attn)];
        EXPECT_EQ(rank.offloaded_bytes(), moved);
        EXPECT_EQ(moved.count % (2 << 20), 0);
        EXPECT_GE(moved.count, 4 * 2 * (2 << 20));
        EXPECT_LT(moved.count, 4 * 3 * (2 << 20));
        EXPECT_EQ(rank.layers, 3);
    }
}

TEST(Evaluate, AddsUpThePinnedMemoryOfANode) {
    // Two stages of four data-parallel ranks on one node of eight.
    SmallJob small;
    small.stages = 2;
    small.layers_per_stage = 3;
    small.microbatches = 4;
    Job job = tests::synthetic_job(small);
    const Outcome outcome = evaluate(job, make_choice(job, {Module::core_attn}, 1));
    job.scenario.parallel.data_parallel_size = 4;
    const Bytes first = outcome.ranks[0].pinned_host, second = outcome.ranks[1].pinned_host;
    ASSERT_GT(first, Bytes{0});
    EXPECT_EQ(pinned_on_fullest_node(job, outcome), Bytes{4 * (first + second).count});
    job.scenario.hardware.node.gpus_per_node = 4;  // a stage a node
    EXPECT_EQ(pinned_on_fullest_node(job, outcome), Bytes{4 * std::max(first, second).count});
}

}  // namespace
}  // namespace stowage::search
