#pragma once

// What the host did, as CUPTI records it: calls, memory, events, waits, NVTX ranges, nodes of graphs.
//
// Times are on the clock of the activities. `name` is an index into `Recording::names`. Numbers of contexts, streams,
// events and graphs are CUPTI's own, `correlation` joins what belongs to one call.

#include <cstdint>
#include <limits>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::profiler {

/// An operation of ours, by a number that the caller chooses.
using OperationNumber = std::uint64_t;
inline constexpr OperationNumber kNoOperation = std::numeric_limits<OperationNumber>::max();

/// Where a context, stream or event does not apply.
inline constexpr std::uint32_t kNotApplicable = 0xFFFFFFFFU;

enum class CallApi : std::uint8_t { runtime, driver };

/// A call of a thread into CUDA: what launching costs the host.
struct Call {
    CallApi api = CallApi::runtime;
    std::uint32_t number = 0;  ///< CUPTI's for the function
    std::uint32_t name = 0;    ///< such as cudaLaunchKernel_v7000
    std::uint32_t process = 0;
    std::uint32_t thread = 0;  ///< the system's number for it
    std::uint32_t correlation = 0;
    std::uint32_t result = 0;  ///< a cudaError_t or CUresult
    types::Nanoseconds start{};
    types::Nanoseconds end{};
    friend bool operator==(const Call&, const Call&) = default;
};

enum class MemoryPlace : std::uint8_t { unknown, pageable, pinned, device, managed, other };

/// CUDA gave or took back memory. Allocators in between, as PyTorch's, take it in large pieces and rarely.
struct Allocation {
    bool release = false;
    bool asynchronous = false;  ///< in the order of a stream, from a pool
    MemoryPlace place = MemoryPlace::unknown;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t stream = kNotApplicable;
    std::uint32_t correlation = 0;
    std::uint32_t name = 0;    ///< of a variable of the device; else that of ""
    std::uint32_t source = 0;  ///< name of the library that asked
    types::Nanoseconds time{};
    std::uint64_t address = 0;
    types::Bytes bytes{};
    std::uint64_t pool = 0;  ///< its address; 0: from no pool
    types::Bytes pool_size{};
    types::Bytes pool_used{};
    friend bool operator==(const Allocation&, const Allocation&) = default;
};

enum class PoolChange : std::uint8_t { unknown, made, destroyed, trimmed };

/// A pool of stream-ordered memory changed.
struct PoolEvent {
    PoolChange change = PoolChange::unknown;
    bool managed = false;
    std::uint32_t device = 0;
    std::uint32_t correlation = 0;
    types::Nanoseconds time{};
    std::uint64_t address = 0;
    types::Bytes size{};
    types::Bytes used{};
    types::Bytes kept{};  ///< of trimming: what is to stay
    friend bool operator==(const PoolEvent&, const PoolEvent&) = default;
};

/// A CUDA event was recorded on a stream. When is known by its call.
struct EventRecord {
    std::uint32_t event = 0;
    std::uint32_t device = 0;
    std::uint32_t context = 0;
    std::uint32_t stream = 0;
    std::uint32_t correlation = 0;
    std::uint64_t round = 0;  ///< tells the records of one event apart
    friend bool operator==(const EventRecord&, const EventRecord&) = default;
};

enum class WaitKind : std::uint8_t { unknown, event, stream_for_event, stream, context };

/// The host waited, or told a stream to wait for an event.
struct Wait {
    WaitKind kind = WaitKind::unknown;
    std::uint32_t context = 0;
    std::uint32_t stream = kNotApplicable;
    std::uint32_t event = kNotApplicable;
    std::uint32_t correlation = 0;
    std::uint32_t result = 0;  ///< a CUresult
    std::uint64_t round = 0;   ///< of the event's record, see EventRecord; ~0: does not apply
    types::Nanoseconds start{};
    types::Nanoseconds end{};
    friend bool operator==(const Wait&, const Wait&) = default;
};

/// An NVTX mark.
struct NvtxMark {
    std::uint32_t name = 0;
    std::uint32_t domain = 0;  ///< index into the names too; that of "": the default domain
    std::uint32_t process = 0;
    std::uint32_t thread = 0;  ///< 0: CUPTI does not say
    types::Nanoseconds time{};
    friend bool operator==(const NvtxMark&, const NvtxMark&) = default;
};

inline constexpr types::Nanoseconds kStillOpen = types::Nanoseconds::max();

/// An NVTX range, pushed and popped or started and ended.
struct NvtxRange {
    std::uint32_t name = 0;
    std::uint32_t domain = 0;  ///< index into the names too; that of "": the default domain
    std::uint32_t process = 0;
    std::uint32_t thread = 0;  ///< that began it; 0: CUPTI does not say
    std::uint32_t id = 0;      ///< CUPTI's
    types::Nanoseconds start{};
    types::Nanoseconds end{};  ///< kStillOpen: not yet; the range comes again, whole, when it has ended
    friend bool operator==(const NvtxRange&, const NvtxRange&) = default;
};

/// A node of a graph was made, by capture or by hand, or with its executable graph from a node of the graph.
struct GraphNode {
    std::uint64_t node = 0;
    std::uint64_t original = 0;  ///< whose copy it is; 0: nobody's
    std::uint32_t thread = 0;    ///< that made it
    types::Nanoseconds made{};
    friend bool operator==(const GraphNode&, const GraphNode&) = default;
};

/// Records that CUPTI had no room for.
struct Drop {
    std::uint32_t context = kNotApplicable;  ///< not applicable: of the whole process
    std::uint32_t stream = 0;
    std::uint64_t records = 0;
    friend bool operator==(const Drop&, const Drop&) = default;
};

}  // namespace stowage::profiler
