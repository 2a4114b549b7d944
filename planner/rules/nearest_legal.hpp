#pragma once

#include <string>
#include <vector>

#include "planner/rules/legality.hpp"

namespace stowage::rules {

/// Changes of settings, each one sentence part such as "drop attn_proj from offload_modules", and what the rules say of
/// the configuration that has them all.
struct LegalNeighbour {
    std::vector<std::string> changes;
    Verdict verdict{};
    friend bool operator==(const LegalNeighbour&, const LegalNeighbour&) = default;
};

/// Up to three configurations with the fewest changes (three at most) that are neither illegal nor a hazard, each
/// judged by the same rules; of as many changes, milder verdicts first. Each change mends something. Empty if the given
/// one is such itself, or if none is that near. Cost: some hundreds of judgements.
std::vector<LegalNeighbour> nearest_legal(const types::Scenario& scenario, const types::OffloadChoice& choice);

}  // namespace stowage::rules
