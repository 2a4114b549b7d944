#pragma once

// Bounds that discard a choice without simulating it.
//
// Memory: at the moment of the peak with nothing offloaded, a choice can at most be missing the storages that its
// groups let go of, of every microbatch in flight on that rank. What it adds (reload buffers, gathers) only makes it
// larger. The caching allocator counts whole blocks, which are up to 1 MiB larger than what was asked for, so that much
// is granted for every tensor alive.
//
// Time: the copies of one direction go through one engine; a step cannot be shorter than those that are certain, each
// alone on its engine, nor than the step without any copy.
//
// Tested by: tests/planner/search/bounds_test.cpp (no bound exceeds what the simulation gives).

#include <string>
#include <vector>

#include "planner/search/job.hpp"

namespace stowage::search {

/// What a choice flags in a chunk that is not the first in backward order: an upper bound of what moves of one
/// microbatch.
struct FlaggedGroups {
    Bytes bytes_per_microbatch{};        ///< over all ranks
    std::vector<Nanoseconds> copy_time;  ///< by rank: the slower direction's copies of one microbatch, at least
    /// By rank, then virtual stage: storages that may go for one microbatch.
    std::vector<std::vector<Bytes>> freed;
    std::string signature;  ///< equal only for choices that flag the same groups on every rank
};
FlaggedGroups flagged_groups(const Job& job, const OffloadChoice& choice);

/// By rank: the least peak that the choice can have, given the outcome with nothing offloaded.
std::vector<Bytes> least_peaks(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged);

/// The least step time that the choice can have.
Nanoseconds least_step_time(const Job& job, const Outcome& nothing, const FlaggedGroups& flagged);

}  // namespace stowage::search
