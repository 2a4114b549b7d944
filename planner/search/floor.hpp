#pragma once

// What no policy with the same copies can undercut. Each term is a lower bound of the step time by itself.
//
// Beside copies: with C the kernels' time alone, A that of the copies of one direction and s the least slowdown of a
// kernel under them, kernels that run beside copies for a take a s / (1 + s) longer, and copies that run beside nothing
// keep the step waiting for longer than that. So the step takes at least C + A s / (1 + s), and the s / (1 + s) of at
// most C (1 + s). Worked example: 300 ms of kernels, 100 ms of copies, s = 0.011: 301.09 ms.
// That holds where the main stream runs kernels only: on one GPU alone. Elsewhere collectives, which copies do not
// slow, may hide them, and the term is left out.
//
// Tested by: tests/planner/search/floor_test.cpp (no term exceeds what the simulation gives).

#include "planner/search/job.hpp"

namespace stowage::search {

/// All are of the slowest rank.
struct Floor {
    Nanoseconds compute{0};   ///< kernels of the busiest rank, back to back, without copies
    Nanoseconds schedule{0};  ///< the whole step without copies: with collectives, pipeline bubble and launch costs
    Nanoseconds beside_copies{0};   ///< those kernels, slowed by the choice's copies; 0: not known
    Nanoseconds device_to_host{0};  ///< the choice's copies of the rank with most, each alone on its engine
    Nanoseconds host_to_device{0};

    /// The largest of them.
    [[nodiscard]] Nanoseconds step() const;
};

/// `nothing`: what the job costs without copies. Both run.
Floor floor_of(const Job& job, const Outcome& nothing, const Outcome& outcome);
/// Without copies.
Floor floor_of(const Outcome& nothing);

}  // namespace stowage::search
