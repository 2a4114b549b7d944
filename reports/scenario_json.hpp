#pragma once

#include "reports/json.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reports {

/// A scenario in the scenario language (schema stowage/scenario/1) with everything resolved: model and machine stand
/// inline, defaults are filled in, sizes are bytes. JSON is YAML, so the reader reads it back to an equal scenario: a
/// plan that carries it can be simulated again without the files it was made from. What is `auto` stays so.
Json scenario_json(const types::Scenario& scenario);

}  // namespace stowage::reports
