#include "planner/search/duty.hpp"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "planner/program/duration_shares.hpp"
#include "planner/program/durations.hpp"
#include "planner/search/alone.hpp"
#include "planner/search/candidates.hpp"
#include "planner/simulator/workers.hpp"

namespace stowage::search {
namespace {

constexpr int kRounds = 4;

/// With the rates that belong to `duty`.
double duty_with_rates_of(const Job& job, std::int64_t rank, double duty) {
    const auto run = run_alone(job, make_choice(job, {}, 1), rank, duty, false);
    if (!run || run->prediction.steady.duration.count() <= 0) return 1;
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel, duty);
    const Nanoseconds multiplying = program::multiplying_time(job.stages.at(static_cast<std::size_t>(rank)),
                                                              job.scenario.microbatches(), durations);
    const auto step = static_cast<double>(run->prediction.steady.duration.count());
    return std::min(1.0, static_cast<double>(multiplying.count()) / step);
}

}  // namespace

double settled_duty(const Job& job, std::int64_t pipeline_rank) {
    double duty = 1;
    for (int round = 0; round < kRounds; ++round) {
        const double before = std::exchange(duty, duty_with_rates_of(job, pipeline_rank, duty));
        if (std::abs(duty - before) <= kDutySettled) break;
    }
    return duty;
}

std::vector<double> settled_duties(const Job& job) {
    std::vector<double> duties(job.stages.size(), 1);
    if (job.scenario.hardware.node.device.rates_by_duty.empty()) return duties;
    const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, duties.size());
    simulator::Workers workers(static_cast<int>(threads));
    workers.run(duties.size(),
                [&](std::size_t rank) { duties[rank] = settled_duty(job, static_cast<std::int64_t>(rank)); });
    return duties;
}

}  // namespace stowage::search
