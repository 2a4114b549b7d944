#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::profiler {

/// An operation of ours, by a number that the caller chooses.
using OperationNumber = std::uint64_t;
inline constexpr OperationNumber kNoOperation = std::numeric_limits<OperationNumber>::max();

enum class ActivityKind { kernel, copy, memset };

enum class CopyKind { none, host_to_device, device_to_host, device_to_device, other };

/// One thing that a device did. Inside a graph, small copies and memsets may be done by kernels.
struct Activity {
    ActivityKind kind = ActivityKind::kernel;
    CopyKind copy_kind = CopyKind::none;  ///< of a copy
    std::uint32_t name = 0;               ///< of a kernel: where in `Recording::names`; else that of ""
    types::Nanoseconds start{};           ///< on CUPTI's clock, whose zero is long ago
    types::Nanoseconds end{};
    types::Bytes bytes{};  ///< of a copy or memset
    std::uint32_t device = 0;
    std::uint32_t stream = 0;       ///< CUPTI's number for it
    std::uint32_t correlation = 0;  ///< of the call that issued it: all nodes of one graph launch share it
    std::uint32_t graph = 0;        ///< CUPTI's number of the graph; 0: not from a graph
    std::uint64_t graph_node = 0;   ///< CUPTI's number of the node; 0: not from a graph
    OperationNumber issued_under = kNoOperation;  ///< what was pushed when the call was made: of a node, the launch

    friend bool operator==(const Activity&, const Activity&) = default;
};

/// What a node of a graph was captured under, by CUPTI's number of the node. Nodes of executable graphs are in it too.
using NodeOperations = std::unordered_map<std::uint64_t, OperationNumber>;

/// What was recorded between two moments.
struct Recording {
    std::vector<std::string> names;  ///< of kernels, as compiled; the first is ""
    std::vector<Activity> activities;
    NodeOperations node_operations;
    std::uint64_t dropped = 0;  ///< records that CUPTI had no room for: times are incomplete if there are any
    std::uint64_t buffers = 0;  ///< that CUPTI delivered: none at all means that somebody else took it over
    std::uint64_t untimed = 0;  ///< activities that CUPTI could not time; they are not among the above
};

}  // namespace stowage::profiler
