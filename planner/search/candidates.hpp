#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/search/job.hpp"
#include "planner/search/plan.hpp"

namespace stowage::search {

/// The choices that a search looks at, and why others are not among them.
struct CandidateSpace {
    std::vector<OffloadChoice> candidates;  ///< legal, distinct in what they do, fewest offloaded bytes first
    std::vector<Rejection> rejections;      ///< illegal combinations of modules that have a site in this model
    std::vector<std::string> notes;
};

/// Every legal subset of the modules that have a site in some layer, times the fractions 0.1, 0.2, ... 1; what the
/// scenario gives is taken instead of what it leaves open. Choices that set the same flags on every rank appear once
/// (the largest fraction).
CandidateSpace enumerate(const Job& job);

/// The modules that have an offload site with something to move in some layer of some stage.
types::ModuleSet modules_with_sites(const Job& job, std::int64_t min_elements);

/// A line for each of `modules` that saves tensors, every one of them below the scenario's size filter.
std::vector<std::string> filtered_modules(const Job& job, types::ModuleSet modules);

/// A choice with the scenario's other knobs.
OffloadChoice make_choice(const Job& job, types::ModuleSet modules, double fraction, bool delay = false);

}  // namespace stowage::search
