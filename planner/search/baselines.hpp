#pragma once

#include <vector>

#include "planner/search/plan.hpp"

namespace stowage::search {

/// What simple policies would have given: nothing; everything (all modules with a site, fraction 1); first N % (the
/// same modules, the smallest fraction that fits); largest first (modules by the bytes they move, until it fits).
std::vector<Baseline> baselines(const Job& job, const Outcome& nothing, const SearchOptions& options);

}  // namespace stowage::search
