#include "planner/search/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planner/program/frame_layout.hpp"
#include "planner/rules/legality.hpp"
#include "planner/search/bounds.hpp"

namespace stowage::search {
namespace {

constexpr int kFractionSteps = 10;

std::vector<double> fractions(const Job& job) {
    const auto& given = job.scenario.offload.activation_offload_fraction;
    if (given) return {*given};
    std::vector<double> values;
    for (int i = kFractionSteps; i >= 1; --i) values.push_back(static_cast<double>(i) / kFractionSteps);
    return values;
}

/// All subsets of `modules`, without the empty one, in the order of ModuleSet.
std::vector<types::ModuleSet> subsets(types::ModuleSet modules) {
    std::vector<types::ModuleSet> sets{types::ModuleSet{}};
    for (const types::Module module : modules.list()) {
        const std::size_t count = sets.size();
        for (std::size_t i = 0; i < count; ++i) {
            sets.push_back(sets[i]);
            sets.back().insert(module);
        }
    }
    sets.erase(sets.begin());
    std::sort(sets.begin(), sets.end());
    return sets;
}

std::vector<types::ModuleSet> module_sets(const Job& job) {
    const auto& given = job.scenario.offload.offload_modules;
    if (given) return {*given};
    return subsets(modules_with_sites(job, job.scenario.offload.min_offloaded_tensor_size));
}

const rules::Finding* worst_finding(const std::vector<rules::Finding>& findings, rules::Severity at_least) {
    const auto worst = std::max_element(findings.begin(), findings.end(), [](const auto& left, const auto& right) {
        return left.severity < right.severity;
    });
    return worst != findings.end() && worst->severity >= at_least ? &*worst : nullptr;
}

/// Only the smallest offenders of a rule are worth reading: a set whose subset broke the same rule adds nothing.
bool already_told(const std::vector<Rejection>& rejections, types::ModuleSet modules, std::string_view rule) {
    return std::any_of(rejections.begin(), rejections.end(), [&](const Rejection& told) {
        if (told.rule != rule) return false;
        const auto inner = told.modules.list();
        return std::all_of(inner.begin(), inner.end(), [&](types::Module module) { return modules.contains(module); });
    });
}

/// Elements of the largest tensor that the module's groups save anywhere.
std::int64_t largest_tensor(const Job& job, types::Module module) {
    std::int64_t largest = 0;
    for (const layers::StageLayers& stage : job.stages)
        for (const layers::LayerScript& script : stage.scripts)
            for (const layers::SavedTensor& saved : script.saved)
                if (saved.group == module) largest = std::max(largest, saved.elements());
    return largest;
}

}  // namespace

types::ModuleSet modules_with_sites(const Job& job, std::int64_t min_elements) {
    types::ModuleSet modules;
    // Layers that save nothing have sites all the same where others of the model are not recomputed.
    if (job.scenario.recompute.recompute_granularity == types::RecomputeGranularity::full) return modules;
    for (const layers::StageLayers& stage : job.stages)
        for (const layers::LayerScript& script : stage.scripts)
            for (const layers::SavedTensor& saved : script.saved)
                if (saved.group && saved.elements() >= min_elements) modules.insert(*saved.group);
    return modules;
}

std::vector<std::string> filtered_modules(const Job& job, types::ModuleSet modules) {
    const std::int64_t minimum = job.scenario.offload.min_offloaded_tensor_size;
    const types::ModuleSet movable = modules_with_sites(job, minimum);
    std::vector<std::string> notes;
    for (const types::Module module : modules.list()) {
        const std::int64_t largest = largest_tensor(job, module);
        if (largest > 0 && !movable.contains(module))
            notes.push_back(
                fmt::format("{}: every tensor is below min_offloaded_tensor_size ({} elements), the largest has {}",
                            types::name_of(module), minimum, largest));
    }
    return notes;
}

OffloadChoice make_choice(const Job& job, types::ModuleSet modules, double fraction, bool delay) {
    const types::Offload& offload = job.scenario.offload;
    return {.modules = modules,
            .fraction = fraction,
            .min_offloaded_tensor_size = offload.min_offloaded_tensor_size,
            .delta_bytes_across_pp_ranks = offload.delta_offload_bytes_across_pp_ranks,
            .max_inflight_offloads = offload.fine_grained_offloading_max_inflight_offloads,
            .delay_until_cuda_graph = delay};
}

/// Delaying has a meaning only for groups of experts beside layers' graphs.
std::vector<bool> delays(const Job& job, types::ModuleSet modules) {
    const std::optional<bool> given = job.scenario.offload.delay_offload_until_cuda_graph;
    if (given) return {*given};
    const bool experts = modules.contains(types::Module::expert_fc1) || modules.contains(types::Module::moe_act);
    const bool graphs = job.scenario.cuda_graph.cuda_graph_impl == types::CudaGraphImpl::transformer_engine;
    return experts && graphs ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

/// Every fraction with every delay.
std::vector<std::pair<double, bool>> settings(const Job& job, types::ModuleSet modules) {
    std::vector<std::pair<double, bool>> all;
    for (const double fraction : fractions(job))
        for (const bool delay : delays(job, modules)) all.emplace_back(fraction, delay);
    return all;
}

CandidateSpace enumerate(const Job& job) {
    CandidateSpace space;
    space.notes = filtered_modules(job, modules_with_sites(job, 0));
    std::set<std::string> seen;
    std::vector<std::pair<std::int64_t, OffloadChoice>> found;
    const bool asked_for = job.scenario.offload.offload_modules && !job.scenario.offload.offload_modules->empty();
    for (const types::ModuleSet modules : module_sets(job)) {
        for (const auto& [fraction, delay] : settings(job, modules)) {
            const OffloadChoice choice = make_choice(job, modules, fraction, delay);
            const auto findings = rules::check(job.scenario, choice);
            if (const rules::Finding* finding = worst_finding(findings, rules::Severity::hazard)) {
                if (!already_told(space.rejections, modules, finding->rule))
                    space.rejections.push_back(
                        {modules, std::string(finding->rule), finding->message, finding->nearest_legal});
                continue;
            }
            const FlaggedGroups flagged = flagged_groups(job, choice);
            if (flagged.bytes_per_microbatch == Bytes{0} && !asked_for) continue;
            if (!seen.insert(flagged.signature).second) continue;
            found.emplace_back(flagged.bytes_per_microbatch.count, choice);
        }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& left, const auto& right) { return left.first < right.first; });
    for (auto& [bytes, choice] : found) space.candidates.push_back(choice);
    return space;
}

}  // namespace stowage::search
