#pragma once

#include <optional>
#include <string>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::cli {

/// `80GiB` of option `name`. Throws: CommandLineError.
types::Bytes parse_size(const std::string& name, const std::string& text);

/// `2.5` of option `name`. Throws: CommandLineError.
double parse_seconds(const std::string& name, const std::string& text);

/// What a command line may override of a scenario file. Throws: CommandLineError.
struct Overrides {
    std::optional<std::string> device_memory;
    std::optional<std::string> host_memory;
    std::optional<std::string> rules;

    void apply(types::Scenario& scenario) const;
};

/// Megatron would not start `what` ("this policy"), and some values have no meaning to compute with. Hazards pass.
/// Throws: types::Error with the rule and the nearest change, exit code 4.
void refuse_illegal(const types::Scenario& scenario, const types::OffloadChoice& choice, const std::string& what);

/// What is so whatever is offloaded: illegal, or a known hazard. Throws: types::Error, exit code 4.
void refuse_job(const types::Scenario& scenario);

/// Throws: types::InputError with everything in the scenario that this version cannot plan, each at its place in
/// the file.
void require_plannable(const reader::LoadedScenario& loaded);

}  // namespace stowage::cli
