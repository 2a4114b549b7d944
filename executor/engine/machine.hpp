#pragma once

// A GPU as the interpreter sees it: what a program's operations ask of a device, and nothing more.
//
// The real one is CudaMachine; tests put a fake in its place and see every call, in order. A capture is a mode: between
// begin_capture and end_capture the same calls become nodes of a graph instead of work.

#include <cstdint>
#include <span>
#include <string_view>

#include "planner/memory/device_memory.hpp"
#include "planner/program/operation.hpp"
#include "planner/program/work.hpp"

namespace stowage::executor {

using memory::Address;
using types::Bytes;
using types::Nanoseconds;

/// What the runtime and kernels take.
inline void* pointer(Address address) {
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): an address of the device or the host
}

/// Whose turn an operation is: what data it works on depends on the microbatch.
struct Place {
    std::int64_t microbatch = -1;
    std::int64_t layer = -1;
};

/// An operation of a run, as timelines name it.
struct OperationId {
    std::uint32_t instance = 0;   ///< of the stage's sequence
    std::uint32_t operation = 0;  ///< of its body
    friend bool operator==(const OperationId&, const OperationId&) = default;
};

/// What a graph holds once captured.
struct CapturedNodes {
    std::int64_t kernels = 0;
    std::int64_t copies = 0;  ///< between host and device
    std::int64_t others = 0;
    friend bool operator==(const CapturedNodes&, const CapturedNodes&) = default;
};

/// Throws: DeviceError from every call when the device fails.
class Machine {
public:
    virtual ~Machine() = default;

    virtual void compute(const program::Work& work, std::span<const Address> buffers, program::Stream stream,
                         Place place) = 0;
    virtual void copy(program::Direction direction, Address from, Address to, Bytes bytes, program::Stream stream) = 0;
    /// The stream does nothing for so long: what other ranks would do meanwhile.
    virtual void delay(Nanoseconds duration, program::Stream stream) = 0;

    /// The host reads a result of the stream's: so many bytes go to host memory that nobody looks at.
    virtual void read_by_host(Bytes bytes, program::Stream stream) = 0;

    /// Events are the program's, by number. An external one is recorded inside a graph for those outside.
    virtual void record(std::uint32_t event, program::Stream stream, bool external) = 0;
    virtual void wait(std::uint32_t event, program::Stream stream) = 0;
    virtual void wait_stream(program::Stream stream, program::Stream other) = 0;
    /// The host waits.
    virtual void synchronise(program::Stream stream) = 0;
    virtual void synchronise_all() = 0;

    virtual void begin_capture(std::uint32_t graph) = 0;
    /// Joins what branched off, and makes the graph launchable.
    virtual CapturedNodes end_capture() = 0;
    virtual void launch_graph(std::uint32_t graph, program::Stream stream) = 0;

    /// Every stream waits for every other: between two steps.
    virtual void join_streams() = 0;

    /// The buffer was just allocated for use on the stream, or is about to be freed. For debugging modes that poison
    /// memory; does nothing otherwise.
    virtual void allocated(Address /*address*/, Bytes /*bytes*/, program::Stream /*stream*/) {}
    virtual void freed(Address /*address*/, Bytes /*bytes*/, bool /*used_elsewhere*/) {}

    /// What the device is given from here on is for this operation, until the next call.
    virtual void attribute(OperationId /*id*/, bool /*captured*/) {}
};

}  // namespace stowage::executor
