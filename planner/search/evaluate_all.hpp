#pragma once

#include <vector>

#include "planner/search/job.hpp"
#include "planner/search/plan.hpp"

namespace stowage::search {

/// The threads that the options ask for, at least one.
unsigned threads_of(const SearchOptions& options);

/// Evaluates every choice, on that many threads. Result: by choice; it does not depend on the number of threads.
std::vector<Outcome> evaluate_all(const Job& job, const std::vector<OffloadChoice>& choices,
                                  const SearchOptions& options);

}  // namespace stowage::search
