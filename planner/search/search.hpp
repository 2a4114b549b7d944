#pragma once

#include "planner/search/job.hpp"
#include "planner/search/plan.hpp"

namespace stowage::search {

/// Chooses which modules to offload, and what fraction of their groups: the least step time such that every rank runs
/// within the device limit (first iteration included) and the pinned memory of every node fits the host
/// limit. Every legal choice is either simulated or discarded by a bound; ties go to fewer offloaded bytes. Result:
/// nothing_to_do if everything fits without offloading, unless giving the cache back on a full device costs more time
/// than offloading would; infeasible with the smallest peak found and what limits it.
/// Cost:   one simulation for each candidate that no bound discards, on all cores. The result does not depend on the
/// number of threads. Throws: types::UnsupportedError for objectives that cannot be planned yet.
Plan make_plan(const Job& job, const SearchOptions& options = {});

/// Whether an outcome keeps every limit of the job.
bool fits(const Job& job, const Outcome& outcome);

/// Which limit an outcome breaks, where and by how much.
std::string limit_broken(const Job& job, const Outcome& outcome);

}  // namespace stowage::search
