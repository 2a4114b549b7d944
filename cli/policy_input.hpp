#pragma once

#include <string>

#include "cli/verb.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::cli {

/// A job and one policy for it: what a verb without a search starts from.
struct PolicyInput {
    types::Scenario scenario;
    types::OffloadChoice choice;
};

/// A scenario's own values. What it leaves to the planner is Megatron's default here: no module, the whole fraction;
/// standard error says so. Throws: types::InputError with everything that this version cannot plan.
PolicyInput own_policy(const CommonOptions& common, reader::LoadedScenario loaded);

/// The scenario that the plan `path` carries, and its choice. Throws: types::InputError, also if there is no choice
/// for `doing` ("simulate").
PolicyInput planned_policy(const std::string& path, const std::string& doing);

}  // namespace stowage::cli
