#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/floor.hpp"
#include "planner/search/job.hpp"
#include "scenarios/types/enum_names.hpp"

namespace stowage::search {

/// A choice that was not taken without being simulated.
struct Rejection {
    types::ModuleSet modules;
    std::string rule;
    std::string reason;
    std::string nearest_legal;
};

/// A simple policy an engineer would try, and what it would have given; absent where it does not exist.
struct Baseline {
    std::string name;  ///< nothing, everything, first_n_percent, largest_first
    std::string description;
    Outcome outcome;
    bool fits = false;
};

/// How sure the result is.
struct Certificate {
    Nanoseconds lower_bound{0};
    double gap = 0;               ///< step time / lower bound - 1
    std::int64_t candidates = 0;  ///< distinct legal choices
    std::int64_t simulated = 0;
    std::int64_t pruned = 0;  ///< discarded by a bound: they cannot be better
    bool complete = true;     ///< every candidate was simulated or pruned
};

enum class PlanVerdict : std::uint8_t { plan, nothing_to_do, infeasible };

/// The answer to a scenario.
struct Plan {
    PlanVerdict verdict = PlanVerdict::infeasible;
    std::optional<Outcome> chosen;    ///< absent when infeasible
    std::optional<Outcome> smallest;  ///< infeasible: the choice with the smallest peak found
    std::optional<Outcome>
        edge;                ///< infeasible: the fastest that runs all the same, giving the cache back within steps
    std::string limited_by;  ///< infeasible: what is over its limit, where and by how much
    Bytes device_limit{};
    Bytes host_limit{};
    Floor floor;
    Certificate certificate;
    std::vector<Baseline> baselines;
    std::vector<Rejection> rejections;
    std::vector<std::string>
        notes;  ///< what an engineer should know: modules without a site, values that have no effect
};

struct SearchOptions {
    std::optional<double>
        time_limit_seconds;  ///< stop after this long; the certificate then says that it is not complete
    simulator::SimulationOptions simulation;
    /// Told after each batch: candidates looked at, and in all. Called on the thread of make_plan.
    std::function<void(std::int64_t, std::int64_t)> progress;
    unsigned threads = 0;  ///< 0: as many as the machine has
};

}  // namespace stowage::search

template <>
struct stowage::types::EnumNames<stowage::search::PlanVerdict> {
    static constexpr std::array<std::pair<stowage::search::PlanVerdict, std::string_view>, 3> values{
        {{stowage::search::PlanVerdict::plan, "plan"},
         {stowage::search::PlanVerdict::nothing_to_do, "nothing_to_do"},
         {stowage::search::PlanVerdict::infeasible, "infeasible"}}};
};
