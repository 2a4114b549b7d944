#pragma once

#include <cstdint>
#include <string_view>

#include "planner/layers/layer_script.hpp"
#include "planner/program/stream.hpp"
#include "planner/program/transfer.hpp"

namespace stowage::program {

using types::Bytes;
using types::Nanoseconds;

enum class OperationKind : std::uint8_t {
    compute,         ///< one kernel or library call
    copy,            ///< one transfer between device and pinned memory
    collective,      ///< over ranks that behave as this one does
    peer_transfer,   ///< one tensor to or from a pipeline neighbour
    event_record,    ///< on `stream`
    event_wait,      ///< `stream` waits for an event recorded before
    stream_wait,     ///< `stream` waits for all that `other` was given so far
    allocate,        ///< device memory for a slot, for use on `stream`
    free,            ///< the slot's last reference goes
    record_stream,   ///< the slot's memory is also used on `stream`
    pinned_acquire,  ///< pinned memory for a slot; `detail` is its pool key, 0 for memory outside the pool
    pinned_release,
    stream_sync,   ///< the host waits until `stream` has done all it was given
    device_sync,   ///< the host waits for every stream
    graph_begin,   ///< what follows is captured as the graph `slot`: memory comes from the graphs' pool, no kernel runs
    graph_end,     ///< the graph is instantiated
    graph_launch,  ///< the instance's graph, on `stream`
    empty_cache,   ///< the caching allocator gives back what it can
};
std::string_view name_of(OperationKind kind);

/// Which frame an operation's slot belongs to: 0 its own, 1 the neighbour that the layer hands its output to, 2 and up
/// the reload targets that the instance names.
using Scope = std::uint8_t;
inline constexpr Scope kOwnFrame = 0;
inline constexpr Scope kNeighbourFrame = 1;
inline constexpr Scope kFirstTarget = 2;
/// StepProgram::graph_frame, whatever the instance: the events that graphs record for those outside.
inline constexpr Scope kGraphScope = 255;

enum class Direction : std::uint8_t { device_to_host, host_to_device };

/// One thing the host issues. Its id is (body, index in the body); the instance adds chunk and layer.
/// `duration` is the time the operation takes alone; a copy's and a kernel's stretch while they share the device.
struct Operation {
    OperationKind kind{};
    Stream stream = Stream::main;
    Stream other = Stream::main;        ///< stream_wait
    types::KernelClass kernel_class{};  ///< compute
    Direction direction{};              ///< copy
    layers::Part part{};
    layers::Phase phase{};
    types::Module module{};  ///< offload operations: the group's module
    Scope scope = kOwnFrame;
    TransferKind transfer{};     ///< peer_transfer
    std::uint16_t launches = 1;  ///< compute: places that it takes in a stream's launch queue
    /// allocate, free, record_stream, pinned_*: slot; event_*: event; compute, copy, collective, peer_transfer: number
    /// of its entry in StepProgram::works, 0 if it has none.
    std::uint32_t slot = 0;
    std::uint32_t detail = 0;  ///< pinned_acquire: pool key; otherwise the index of the label
    Bytes bytes{};
    Nanoseconds duration{0};
};

/// A copy of a few numbers that the host then waits for, with no work: a script says how many bytes, not whose. What
/// offloading moves leaves on a stream of its own.
inline bool is_read_by_host(const Operation& operation) {
    return operation.kind == OperationKind::copy && operation.stream == Stream::main &&
           operation.direction == Direction::device_to_host;
}

}  // namespace stowage::program
