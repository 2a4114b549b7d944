#include "planner/rules/nearest_legal.hpp"

#include <algorithm>

#include "planner/rules/setting_changes.hpp"

namespace stowage::rules {
namespace {

constexpr int kMostChanges = 3;
constexpr std::size_t kMostNeighbours = 3;

/// Rules broken so that `plan` would refuse.
std::int64_t obstacles(const std::vector<Finding>& findings) {
    return std::count_if(findings.begin(), findings.end(),
                         [](const Finding& finding) { return finding.severity >= Severity::hazard; });
}

bool same_changes(const LegalNeighbour& found, std::vector<std::string> changes) {
    std::vector<std::string> known = found.changes;
    std::sort(known.begin(), known.end());
    std::sort(changes.begin(), changes.end());
    return known == changes;
}

/// Tries every way with exactly `left` further changes, each of which must mend something.
void look(const Configuration& given, std::int64_t broken, int left, std::vector<std::string>& changes,
          std::vector<LegalNeighbour>& found) {
    for (ChangedConfiguration& changed : changes_of(given)) {
        const auto findings = check(changed.configuration.scenario, changed.configuration.choice);
        const std::int64_t still = obstacles(findings);
        if (still >= broken) continue;
        changes.push_back(std::move(changed.words));
        const bool known = std::any_of(found.begin(), found.end(),
                                       [&](const LegalNeighbour& one) { return same_changes(one, changes); });
        if (still == 0 && left == 1 && !known) found.push_back({changes, worst(findings)});
        if (still > 0 && left > 1) look(changed.configuration, still, left - 1, changes, found);
        changes.pop_back();
    }
}

}  // namespace

std::vector<LegalNeighbour> nearest_legal(const types::Scenario& scenario, const types::OffloadChoice& choice) {
    std::vector<LegalNeighbour> found;
    const std::int64_t broken = obstacles(check(scenario, choice));
    for (int changes = 1; broken > 0 && found.size() < kMostNeighbours && changes <= kMostChanges; ++changes) {
        std::vector<std::string> so_far;
        const auto nearer = static_cast<std::ptrdiff_t>(found.size());
        look({scenario, choice}, broken, changes, so_far, found);
        std::stable_sort(
            found.begin() + nearer, found.end(),
            [](const LegalNeighbour& left, const LegalNeighbour& right) { return left.verdict < right.verdict; });
    }
    if (found.size() > kMostNeighbours) found.resize(kMostNeighbours);
    return found;
}

}  // namespace stowage::rules
