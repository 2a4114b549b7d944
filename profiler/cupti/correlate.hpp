#pragma once

// Whose time was it: from what a device did to what our operations took.
//
// An activity outside of graphs belongs to the operation that was pushed when it was issued. One of a graph belongs to
// the operation that was pushed when its node was captured; what was pushed at the launch tells replays apart. So an
// operation of a graph that is launched under operations 7 and 8 has two times, (3, 7) and (3, 8).
//
// Worked example: kernels of node 11 at [0, 4) and of node 12 at [5, 9), both captured under operation 3 and launched
// under 7: one entry (3, 7) from 0 to 9, busy 8, two kernels. A third at [10, 11), whose node nobody knows, is counted
// as unmatched; the launch of 7 goes from 0 to 11 all the same.
//
// Tested by: tests/profiler/cupti/correlate_test.cpp.

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/cupti/activity.hpp"

namespace stowage::profiler {

/// What one run of one operation took.
struct OperationTimes {
    OperationNumber operation = kNoOperation;
    OperationNumber launch = kNoOperation;  ///< the operation that launched its graph; none outside of graphs
    types::Nanoseconds first_start{};
    types::Nanoseconds last_end{};
    types::Nanoseconds busy{};  ///< the sum of its activities' durations: more than the span if they overlap
    types::Bytes bytes{};       ///< copied and set
    std::uint32_t kernels = 0;
    std::uint32_t copies = 0;
    std::uint32_t memsets = 0;

    friend bool operator==(const OperationTimes&, const OperationTimes&) = default;
};

struct CorrelatedTimes {
    std::vector<OperationTimes> operations;  ///< in the order of their first starts
    /// By launching operation, what its graph took as a whole; `operation` is the launching one, `launch` none.
    std::vector<OperationTimes> launches;
    /// Activities that belong to no operation: issued while none was pushed, or nodes captured while none was.
    std::uint64_t unmatched = 0;
};

/// An operation that is run several times under the same numbers, as in several steps, has its runs merged: correlate
/// each step by itself. Cost: O(N log N).
CorrelatedTimes correlate(std::span<const Activity> activities, const NodeOperations& node_operations);

}  // namespace stowage::profiler
