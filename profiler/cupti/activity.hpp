#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/cupti/host_records.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::profiler {

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
    std::uint32_t context = 0;      ///< CUPTI's number for it
    std::uint32_t stream = 0;       ///< CUPTI's number for it, unique in its context
    std::uint32_t correlation = 0;  ///< of the call that issued it: all nodes of one graph launch share it
    std::uint32_t graph = 0;        ///< CUPTI's number of the graph; 0: not from a graph
    std::uint64_t graph_node = 0;   ///< CUPTI's number of the node; 0: not from a graph
    OperationNumber issued_under = kNoOperation;  ///< what was pushed when the call was made: of a node, the launch

    friend bool operator==(const Activity&, const Activity&) = default;
};

/// What a node of a graph was captured under, by CUPTI's number of the node. Nodes of executable graphs are in it too.
using NodeOperations = std::unordered_map<std::uint64_t, OperationNumber>;

/// What was recorded between two moments: of each kind what the recorder was asked for, in no particular order.
struct Recording {
    std::vector<std::string> names;  ///< of kernels as compiled, of calls, ranges and domains; the first is ""
    std::vector<Activity> activities;
    NodeOperations node_operations;

    std::vector<Call> calls;
    std::vector<Allocation> allocations;
    std::vector<PoolEvent> pools;
    std::vector<EventRecord> events;
    std::vector<Wait> waits;
    std::vector<NvtxMark> marks;
    std::vector<NvtxRange> ranges;
    std::vector<GraphNode> nodes;  ///< all that were made since the recorder was there

    std::uint64_t dropped = 0;  ///< records that CUPTI had no room for: times are incomplete if there are any
    std::vector<Drop> drops;    ///< the same, by context and stream
    std::uint64_t buffers = 0;  ///< that CUPTI delivered: none at all means that somebody else took it over
    std::uint64_t untimed = 0;  ///< records that CUPTI could not time; they are not among the above

    std::uint64_t foreign_buffers = 0;  ///< delivered to us though somebody else had given them
    std::uint64_t missing_buffers = 0;  ///< given to CUPTI and not yet back
    types::Nanoseconds last_wait{};     ///< when CUPTI last said, by a callback, that the host had waited; 0: not asked
};

/// The latest time in any record; zero if there is none.
types::Nanoseconds last_time(const Recording& recording);

/// What makes a recording incomplete or suspect, each with what to do; nothing if all is well.
/// Records that stopped long before the last wait went to another profiler, which took CUPTI's buffers over.
std::vector<std::string> doubts_about(const Recording& recording);

}  // namespace stowage::profiler
