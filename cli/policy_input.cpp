#include "cli/policy_input.hpp"

#include "cli/inputs.hpp"
#include "planner/rules/legality.hpp"
#include "reports/document.hpp"
#include "reports/plan_json.hpp"

namespace stowage::cli {

PolicyInput own_policy(const CommonOptions& common, reader::LoadedScenario loaded) {
    types::Offload& offload = loaded.scenario.offload;
    const bool modules_open = !offload.offload_modules;
    const bool fraction_open = !offload.activation_offload_fraction;
    offload.offload_modules = offload.offload_modules.value_or(types::ModuleSet{});
    offload.activation_offload_fraction = offload.activation_offload_fraction.value_or(1.0);
    require_plannable(loaded);
    if (modules_open)
        say(common, "offload_modules: auto: nothing is offloaded here; 'stowage plan' chooses");
    else if (fraction_open && !offload.offload_modules->empty())
        say(common, "activation_offload_fraction: auto: 1 here; 'stowage plan' chooses");
    const types::OffloadChoice choice = rules::own_choice(loaded.scenario);
    return {std::move(loaded.scenario), choice};
}

PolicyInput planned_policy(const std::string& path, const std::string& doing) {
    reports::PlannedChoice planned = reports::planned_choice(reports::read_document(path, reports::kPlanSchema), path);
    if (!planned.choice)
        throw types::InputError(path + ": error: the plan is infeasible and has no choice to " + doing);
    return {std::move(planned.scenario), *planned.choice};
}

}  // namespace stowage::cli
