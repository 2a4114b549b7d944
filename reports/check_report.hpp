#pragma once

#include <string>

#include "reports/json.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reports {

/// Whether Megatron takes the scenario's offload values (schema stowage/check/1): `verdict`, and `findings` with
/// `rule`, `severity`, `message`, `nearest_legal`; `nearest` has the configurations with the fewest `changes` that plan
/// would take, and the `verdict` of each. What is `auto` is judged as it cannot be wrong: no modules,
/// fraction 1.
Json check_json(const types::Scenario& scenario);

/// The same for a terminal. A finding that has a place in a file, `at` as file:line:column, shows it.
std::string check_text(const Json& check);

}  // namespace stowage::reports
