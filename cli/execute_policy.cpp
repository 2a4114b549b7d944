#include "cli/execute_policy.hpp"

#include "cli/inputs.hpp"
#include "reports/document.hpp"

namespace stowage::cli {
namespace {

constexpr const char* kOtherLayers = "found megatron, whose layers do not run here: what is executed are stowage's own";
constexpr const char* kOwnLayers =
    "set implementation: stowage; a measurement is held against a prediction of the same implementation only";

bool runs_here(const types::Scenario& scenario) { return scenario.implementation == types::Implementation::stowage; }

PolicyInput read_scenario(const CommonOptions& common, const std::string& path) {
    reader::LoadedScenario loaded = reader::load_scenario(path);
    if (!runs_here(loaded.scenario))
        throw types::InputError(loaded.where.describe("implementation", kOtherLayers, kOwnLayers));
    return own_policy(common, std::move(loaded));
}

PolicyInput read_plan(const std::string& path) {
    PolicyInput planned = planned_policy(path, "execute");
    if (!runs_here(planned.scenario))
        throw types::InputError(path + ": error: scenario.implementation: " + kOtherLayers + "\nhint: " + kOwnLayers +
                                " (in the scenario, and plan it again)");
    return planned;
}

}  // namespace

void ExecutedPolicyOptions::add_to(CLI::App& verb) {
    verb.add_option("--policy", policy,
                    "megatron: as Megatron's manager moves groups; stowage: any subset, fixed addresses; none")
        ->check(CLI::IsMember({"megatron", "stowage", "none"}))
        ->type_name("POLICY");
}

ExecutedPolicy read_executed_policy(const CommonOptions& common, const std::string& input,
                                    const ExecutedPolicyOptions& options) {
    PolicyInput read = reports::looks_like_json(input) ? read_plan(input) : read_scenario(common, input);
    const std::string name = options.policy.value_or(read.choice.modules.empty() ? "none" : "megatron");
    if (name == "none") read.choice.modules = {};
    refuse_illegal(read.scenario, read.choice, "this policy");
    return {std::move(read.scenario), read.choice, name};
}

}  // namespace stowage::cli
