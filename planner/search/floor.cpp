#include "planner/search/floor.hpp"

#include <algorithm>
#include <cmath>

namespace stowage::search {
namespace {

/// The simulator's speeds are whole multiples of a millionth.
constexpr double kSpeedStep = 1e-6;

/// The least slowdown of any class of kernels under copies of this direction, alone or beside the other's.
double least_slowdown(const types::CopyEngines& engines, double types::Slowdown::*direction) {
    double least = engines.slowdown[0].*direction;
    for (const types::Slowdown& slowdown : engines.slowdown)
        least = std::min({least, slowdown.*direction, slowdown.under_both});
    return least;
}

/// What copies of this much time add to kernels of that much.
Nanoseconds slowed_by(Nanoseconds kernels, Nanoseconds copies, double slowdown) {
    const double share = std::max(0.0, slowdown / (1 + slowdown) - kSpeedStep);
    const double beside =
        std::min(static_cast<double>(copies.count()), static_cast<double>(kernels.count()) * (1 + slowdown));
    return Nanoseconds{static_cast<std::int64_t>(std::floor(beside * share))};
}

Nanoseconds beside_copies(const types::CopyEngines& engines, const RankOutcome& nothing, const RankOutcome& rank) {
    const double to_host = least_slowdown(engines, &types::Slowdown::under_d2h);
    const double to_device = least_slowdown(engines, &types::Slowdown::under_h2d);
    return nothing.compute + std::max(slowed_by(nothing.compute, rank.device_to_host_alone, to_host),
                                      slowed_by(nothing.compute, rank.host_to_device_alone, to_device));
}

}  // namespace

Nanoseconds Floor::step() const { return std::max({compute, schedule, beside_copies, device_to_host, host_to_device}); }

Floor floor_of(const Outcome& nothing) {
    Floor floor;
    floor.schedule = nothing.step_time;
    for (const RankOutcome& rank : nothing.ranks) floor.compute = std::max(floor.compute, rank.compute);
    return floor;
}

Floor floor_of(const Job& job, const Outcome& nothing, const Outcome& outcome) {
    Floor floor = floor_of(nothing);
    for (const RankOutcome& rank : outcome.ranks) {
        floor.device_to_host = std::max(floor.device_to_host, rank.device_to_host_alone);
        floor.host_to_device = std::max(floor.host_to_device, rank.host_to_device_alone);
    }
    if (job.scenario.parallel.world_size() == 1)
        floor.beside_copies =
            beside_copies(job.scenario.hardware.node.copy, nothing.ranks.front(), outcome.ranks.front());
    return floor;
}

}  // namespace stowage::search
