#include "planner/search/floor.hpp"

#include <gtest/gtest.h>

#include "planner/program/choose_free.hpp"
#include "planner/search/candidates.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::search {
namespace {

Job job_of(const char* file) {
    types::Scenario scenario = reader::load_scenario(std::string(STOWAGE_SOURCE_DIR "/") + file).scenario;
    scenario.offload.offload_modules = types::ModuleSet{};
    scenario.offload.activation_offload_fraction = 1;
    return prepare(std::move(scenario));
}

/// Kernels of 300 ms and copies of 100 and 40 ms on one rank.
Outcome round_outcome() {
    Outcome outcome;
    outcome.ranks.emplace_back();
    RankOutcome& rank = outcome.ranks.front();
    rank.compute = Nanoseconds{300'000'000};
    rank.device_to_host_alone = Nanoseconds{100'000'000};
    rank.host_to_device_alone = Nanoseconds{40'000'000};
    outcome.step_time = Nanoseconds{301'000'000};
    return outcome;
}

Job one_gpu(double slowdown) {
    Job job;
    for (types::Slowdown& one : job.scenario.hardware.node.copy.slowdown) one = {slowdown, slowdown, slowdown};
    return job;
}

// A slowdown of a quarter takes a fifth of the copies' time: 20 ms, less a millionth of 100 ms for what the simulator
// rounds.
TEST(Floor, AddsWhatCopiesSlow) {
    const Floor floor = floor_of(one_gpu(0.25), round_outcome(), round_outcome());
    EXPECT_EQ(floor.compute, Nanoseconds{300'000'000});
    EXPECT_EQ(floor.schedule, Nanoseconds{301'000'000});
    EXPECT_NEAR(static_cast<double>(floor.beside_copies.count()), 320e6 - 100, 1);
    EXPECT_EQ(floor.device_to_host, Nanoseconds{100'000'000});
    EXPECT_EQ(floor.host_to_device, Nanoseconds{40'000'000});
    EXPECT_EQ(floor.step(), floor.beside_copies);
}

// Copies of 900 ms cover all kernels, which take 375 ms beside them.
TEST(Floor, SlowsKernelsOnceAndIsTheLinkBeyondThat) {
    Outcome outcome = round_outcome();
    outcome.ranks.front().device_to_host_alone = Nanoseconds{900'000'000};
    const Floor floor = floor_of(one_gpu(0.25), round_outcome(), outcome);
    EXPECT_NEAR(static_cast<double>(floor.beside_copies.count()), 375e6 - 375, 1);
    EXPECT_EQ(floor.step(), Nanoseconds{900'000'000});
}

// One class of kernels that nothing slows may be what runs beside the copies.
TEST(Floor, CountsTheLeastSlowdown) {
    Job job = one_gpu(0.25);
    job.scenario.hardware.node.copy.slowdown[1].under_d2h = 0;
    job.scenario.hardware.node.copy.slowdown[2].under_h2d = 0;
    EXPECT_EQ(floor_of(job, round_outcome(), round_outcome()).beside_copies, Nanoseconds{300'000'000});
}

// Collectives may hide copies.
TEST(Floor, LeavesSlowdownOutWhereRanksTalk) {
    Job job = one_gpu(0.25);
    job.scenario.parallel.data_parallel_size = 2;
    EXPECT_EQ(floor_of(job, round_outcome(), round_outcome()).beside_copies, Nanoseconds{0});
}

// Our own policy, from a quarter of what may leave, which fits beside the kernels, to all of it, which does not; copies
// joined at once or late.
TEST(Floor, IsNeverOverTheSimulatedStep) {
    const Job job = job_of("scenarios/dense-8x4096.yaml");
    const Outcome nothing = evaluate(job, make_choice(job, {}, 1));
    EXPECT_LE(floor_of(job, nothing, nothing).step(), nothing.step_time);
    OffloadChoice choice;
    for (const auto& [module, name] : types::enum_names<types::Module>()) choice.modules.insert(module);
    for (const double share : {0.25, 0.5, 1.0}) {
        choice.free = program::choose_free(job.stages.front(), choice, share);
        for (const std::int64_t pace : {1, 4, 16}) {
            choice.free->join_after = choice.free->reload_ahead = pace;
            const Outcome outcome = evaluate(job, choice);
            const Floor floor = floor_of(job, nothing, outcome);
            EXPECT_GT(floor.device_to_host, Nanoseconds{0});
            EXPECT_GT(floor.beside_copies, nothing.ranks.front().compute);
            EXPECT_LE(floor.step(), outcome.step_time) << "fraction " << share << ", pace " << pace;
        }
    }
}

}  // namespace
}  // namespace stowage::search
