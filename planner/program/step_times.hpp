#pragma once

// Where the time of one steady step went, by one definition for a predicted and for a measured timeline, so that the
// two can be held against each other.
//
// A rank's slice runs without its neighbours: what they would do is waited for by delays of the modelled length. Such a
// wait is no prediction of anything, so it is taken out of both sides: `modelled_waits` is the time in which a delay
// runs and nothing computes.
//
// Worked example, us: a kernel 0 to 10, a delay 8 to 20, a copy 15 to 30, a kernel 30 to 40. Computing: 20. Waits: 10
// to 20, which is 10. Exposed copy: 20 to 30, which is 10; before that the delay is what the kernel waits for anyway.
//
// Tested by: tests/planner/program/step_times_test.cpp.

#include <array>

#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"

namespace stowage::program {

struct StepTimes {
    Nanoseconds main_busy{0};                ///< computing on the stream of the layers, or of their graphs
    Nanoseconds exposed_copy{0};             ///< a copy runs, and neither a kernel there nor a delay
    Nanoseconds modelled_waits{0};           ///< a delay runs, and no kernel there
    std::array<Nanoseconds, 2> copy_busy{};  ///< by Direction: the sum of the copies' times
};

/// The operation that an entry of a timeline of the steady stage is of; null if the program has none there.
const Operation* operation_of(const StepProgram& program, const TimelineEntry& entry);

/// Entries that are of no operation of the program are passed over. Cost: O(n log n).
StepTimes step_times(const StepProgram& program, const StageTimeline& timeline);

}  // namespace stowage::program
