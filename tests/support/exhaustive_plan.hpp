#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search/job.hpp"

namespace stowage::tests {

/// Every choice that a plan may take, straight from what the problem says: each subset of the nine modules whose every
/// module saves something that passes the size filter, at each tenth (or the scenario's fraction), unless a rule calls
/// it a hazard or worse. The empty choice comes first.
std::vector<types::OffloadChoice> every_choice(const search::Job& job);

/// The oracle: simulates every choice. Result: nothing if it fits, else the fastest
/// that fits, ties to fewer bytes, then to the order of the module sets and to the larger fraction; absent if none
/// fits.
struct Exhaustive {
    std::optional<search::Outcome> best;
    types::Bytes smallest_peak{};  ///< of all choices
    std::int64_t simulated = 0;
};
Exhaustive exhaustive_plan(const search::Job& job, const simulator::SimulationOptions& options = {});

}  // namespace stowage::tests
