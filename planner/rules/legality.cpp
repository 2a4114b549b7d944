#include "planner/rules/legality.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/rules/environment_rules.hpp"
#include "planner/rules/graph_rules.hpp"
#include "planner/rules/hazard_rules.hpp"
#include "planner/rules/offload_graph_rules.hpp"
#include "planner/rules/offload_rules.hpp"
#include "planner/rules/recompute_rules.hpp"
#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

Verdict verdict_of(Severity severity) {
    switch (severity) {
        case Severity::note: return Verdict::legal;
        case Severity::legal_with_changes: return Verdict::legal_with_changes;
        case Severity::hazard: return Verdict::hazard;
        case Severity::illegal: return Verdict::illegal;
    }
    return Verdict::illegal;
}

types::OffloadChoice policy_with(const types::Offload& offload, types::ModuleSet modules, double fraction) {
    return {.modules = modules,
            .fraction = fraction,
            .min_offloaded_tensor_size = offload.min_offloaded_tensor_size,
            .delta_bytes_across_pp_ranks = offload.delta_offload_bytes_across_pp_ranks,
            .max_inflight_offloads = offload.fine_grained_offloading_max_inflight_offloads,
            .delay_until_cuda_graph = offload.delay_offload_until_cuda_graph.value_or(false)};
}

void add_subsets(const std::vector<types::Module>& modules, std::size_t next, types::ModuleSet chosen,
                 std::vector<types::ModuleSet>& subsets) {
    if (next == modules.size()) {
        subsets.push_back(chosen);
        return;
    }
    add_subsets(modules, next + 1, chosen, subsets);
    chosen.insert(modules[next]);
    add_subsets(modules, next + 1, chosen, subsets);
}

}  // namespace

std::span<const Rule> rules() {
    static const std::vector<Rule> all = [] {
        std::vector<Rule> joined;
        for (const std::span<const Rule> some : {offload_rules(), graph_rules(), recompute_rules(),
                                                 offload_graph_rules(), environment_rules(), hazard_rules()})
            joined.insert(joined.end(), some.begin(), some.end());
        return joined;
    }();
    return all;
}

types::OffloadChoice own_choice(const types::Scenario& scenario) {
    const types::Offload& offload = scenario.offload;
    return policy_with(offload, offload.offload_modules.value_or(types::ModuleSet{}),
                       offload.activation_offload_fraction.value_or(1));
}

std::vector<Finding> check(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    const Case one{scenario, choice};
    std::vector<Finding> findings;
    for (const Rule& rule : rules()) {
        if (!rule.sets.contains(scenario.rules)) continue;
        if (const auto offence = rule.offence(one))
            findings.push_back({rule.id, rule.severity, fmt::format("{}: {}", *offence, rule.reason),
                                std::string(rule.nearest_legal)});
    }
    return findings;
}

Verdict worst(std::span<const Finding> findings) {
    Verdict verdict = Verdict::legal;
    for (const Finding& finding : findings) verdict = std::max(verdict, verdict_of(finding.severity));
    return verdict;
}

std::vector<types::ModuleSet> legal_subsets(const types::Scenario& scenario, types::ModuleSet candidates) {
    std::vector<types::Module> present;
    for (const types::Module module : candidates.list())
        if (has_site_anywhere(scenario, module)) present.push_back(module);
    std::vector<types::ModuleSet> subsets;
    add_subsets(present, 0, {}, subsets);
    std::erase_if(subsets, [&](types::ModuleSet modules) {
        return worst(check(scenario, policy_with(scenario.offload, modules, 1))) == Verdict::illegal;
    });
    std::sort(subsets.begin(), subsets.end());
    return subsets;
}

}  // namespace stowage::rules
