#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// A rule that a configuration breaks.
struct Finding {
    std::string_view rule;  ///< its id
    Severity severity{};
    std::string message;        ///< the offending setting and the reason
    std::string nearest_legal;  ///< what to change

    friend bool operator==(const Finding&, const Finding&) = default;
};

/// Every rule, in the order in which findings are reported.
std::span<const Rule> rules();

/// The policy that the scenario itself gives; what it leaves to the planner is as it cannot be wrong: no modules, the
/// whole fraction, no delay.
types::OffloadChoice own_choice(const types::Scenario& scenario);

/// The rules of the scenario's rule set that `choice` breaks. Where the scenario leaves a setting to the planner
/// (auto), rules about that setting alone are kept.
std::vector<Finding> check(const types::Scenario& scenario, const types::OffloadChoice& choice);

/// The worst of the findings; notes do not count.
Verdict worst(std::span<const Finding> findings);

/// Every subset of `candidates`, the empty one included, that is not illegal and has a site for each of its modules (a
/// module without one adds nothing); by the order of ModuleSet. Other settings are the scenario's, the fraction is 1,
/// so hazards that depend on the fraction remain to be looked at.
std::vector<types::ModuleSet> legal_subsets(const types::Scenario& scenario, types::ModuleSet candidates);

}  // namespace stowage::rules
