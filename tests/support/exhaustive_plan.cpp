#include "tests/support/exhaustive_plan.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "planner/rules/legality.hpp"

namespace stowage::tests {
namespace {

using search::Outcome;
using types::Bytes;
using types::ModuleSet;

bool has_site(const search::Job& job, types::Module module) {
    for (const layers::StageLayers& stage : job.stages)
        for (const layers::LayerScript& script : stage.scripts)
            for (const layers::SavedTensor& saved : script.saved)
                if (saved.group == module && saved.elements() >= job.scenario.offload.min_offloaded_tensor_size)
                    return true;
    return false;
}

ModuleSet subset(unsigned bits) {
    ModuleSet modules;
    for (unsigned i = 0; i < static_cast<unsigned>(types::kModuleCount); ++i)
        if ((bits >> i & 1U) != 0) modules.insert(static_cast<types::Module>(i));
    return modules;
}

bool fits(const search::Job& job, const Outcome& outcome) {
    if (!outcome.runs()) return false;
    return std::all_of(outcome.ranks.begin(), outcome.ranks.end(), [&](const search::RankOutcome& rank) {
        return rank.peak_device() <= job.scenario.device_memory_limit();
    });
}

auto order_of(const Outcome& outcome) {
    return std::tuple(outcome.step_time, outcome.offloaded_bytes(), outcome.choice.modules, -outcome.choice.fraction);
}

}  // namespace

std::vector<types::OffloadChoice> every_choice(const search::Job& job) {
    const types::Offload& offload = job.scenario.offload;
    std::vector<double> fractions;
    for (int tenths = 10; tenths >= 1; --tenths) fractions.push_back(tenths / 10.0);
    if (offload.activation_offload_fraction) fractions = {*offload.activation_offload_fraction};
    std::vector<types::OffloadChoice> choices{
        {{}, 1, offload.min_offloaded_tensor_size, offload.delta_offload_bytes_across_pp_ranks}};
    for (unsigned bits = 1; bits < 1U << types::kModuleCount; ++bits) {
        const ModuleSet modules = subset(bits);
        const auto list = modules.list();
        if (!std::all_of(list.begin(), list.end(), [&](types::Module module) { return has_site(job, module); }))
            continue;
        for (const double fraction : fractions) {
            types::OffloadChoice choice = choices.front();
            choice.modules = modules;
            choice.fraction = fraction;
            if (rules::worst(rules::check(job.scenario, choice)) < rules::Verdict::hazard) choices.push_back(choice);
        }
    }
    return choices;
}

Exhaustive exhaustive_plan(const search::Job& job, const simulator::SimulationOptions& options) {
    Exhaustive result;
    result.smallest_peak = Bytes{std::numeric_limits<std::int64_t>::max()};
    for (const types::OffloadChoice& choice : every_choice(job)) {
        const Outcome outcome = search::evaluate(job, choice, options);
        ++result.simulated;
        if (outcome.runs()) result.smallest_peak = std::min(result.smallest_peak, outcome.fullest_rank().peak_device());
        if (!fits(job, outcome)) continue;
        if (!result.best || order_of(outcome) < order_of(*result.best)) result.best = outcome;
        if (choice.modules.empty()) return result;
    }
    return result;
}

}  // namespace stowage::tests
