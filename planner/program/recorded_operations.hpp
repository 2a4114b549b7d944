#pragma once

// What a recording says about single operations: how long the device worked on each, and what it then spent before it
// began the next one of that stream.
//
// Steps count that ran without graphs after the first one and lost no record. In them the stream with most kernels is
// the main one. An operation of several kernels spans the first one's start to the last one's end.
//
// The gap behind an operation is the device's own (it ends one kernel, writes back, fetches the next) only if the next
// one was waiting by then. A recording does not say when the host issued what, so the gap's length tells: up to twice
// the start-to-start time of empty kernels, or twice the recording's lower quartile of gaps where that is more and
// still shorter than the host needs for a launch. A longer one is the host being late or a wait for another stream,
// which the simulator has for itself.
//
// Recording stamps every activity, which takes time between them. Where the recorded steps were timed as a whole, and
// others just before recording began, the difference is shared out evenly over the operations and taken off their gaps,
// to at most all of a gap.
//
// Worked example: kernels at 0-10, 11-31, 47-50 us, empty kernels 1.46 us apart: the first has a gap of 1 us, the
// second none (16 us: the host was late), the last none.
//
// Tested by: tests/planner/program/recorded_operations_test.cpp.

#include <cstdint>
#include <optional>
#include <vector>

#include "scenarios/recording/recording.hpp"
#include "scenarios/types/hardware.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::program {

struct RecordedOperation {
    std::uint32_t site = 0;  ///< index into Recording::sites
    std::int32_t layer = -1;
    std::int32_t microbatch = -1;
    std::uint32_t occurrence = 0;  ///< among those of the same site, layer and microbatch of its step
    std::uint32_t step = 0;        ///< counts the steps that are used
    std::uint32_t name = 0;        ///< of its first kernel: index into Recording::names
    types::Nanoseconds span{0};
    std::optional<types::Nanoseconds> gap;  ///< the device's own; may be negative: the next kernel began early
    bool beside_copy = false;               ///< a copy to or from the host ran meanwhile
    std::int32_t launches = 0;              ///< its activities on the main stream
};

struct RecordedOperations {
    std::vector<RecordedOperation> operations;  ///< by step, then as they were issued
    types::Nanoseconds gap{0};              ///< the middle one of the device's own; without any, that of empty kernels
    std::vector<types::Nanoseconds> steps;  ///< durations of those that are used
    types::Nanoseconds stamping{0};         ///< taken off each gap
    /// The recorded steps' time over that of unrecorded ones, less 1; nothing where either was not timed.
    std::optional<double> recording_cost;
};

/// `node` says what empty kernels and launches take. Without a usable step there are no operations.
/// Cost: O(events log events).
RecordedOperations recorded_operations(const recording::Recording& recording, const types::Node& node);

}  // namespace stowage::program
