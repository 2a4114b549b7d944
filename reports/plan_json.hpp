#pragma once

#include "planner/search/plan.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

inline constexpr const char* kPlanSchema = "stowage/plan/1";
inline constexpr const char* kSimulationSchema = "stowage/simulation/1";

/// A plan as its file (schema stowage/plan/1): the answer, what it rests on and the scenario, resolved, so that the
/// file explains itself and can be simulated again alone. What people see is made from this document and nothing else.
Json plan_json(const search::Job& job, const search::Plan& plan);

/// One choice without a search (schema stowage/simulation/1): the same `choice`, `predicted` and `ranks` as a plan's.
/// `at_limit`: the same choice simulated with no more device memory than the limit, where it would reserve more.
/// `floor`: of this choice; without it the document has none.
Json simulation_json(const search::Job& job, const search::Outcome& outcome,
                     const std::optional<search::Outcome>& at_limit = std::nullopt,
                     const std::optional<search::Floor>& floor = std::nullopt);

}  // namespace stowage::reports
