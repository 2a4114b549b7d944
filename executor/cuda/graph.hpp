#pragma once

#include <cstddef>

#include "executor/cuda/stream.hpp"

namespace stowage::executor {

/// How many nodes of each kind a graph has, those of graphs inside it included.
struct GraphNodeCounts {
    std::size_t kernels = 0;
    std::size_t memcpys = 0;
    std::size_t memsets = 0;
    std::size_t event_records = 0;  ///< external ones: what orders streams inside a capture is an edge, not a node
    std::size_t event_waits = 0;    ///< the same
    std::size_t host_functions = 0;
    std::size_t others = 0;  ///< empty, allocations, semaphores, conditionals

    [[nodiscard]] std::size_t total() const {
        return kernels + memcpys + memsets + event_records + event_waits + host_functions + others;
    }
    friend bool operator==(const GraphNodeCounts&, const GraphNodeCounts&) = default;
};

struct GraphTraits {
    static cudaError_t release(cudaGraph_t graph) { return cudaGraphDestroy(graph); }
    static constexpr const char* kName = "a graph";
};

/// What a capture recorded: nodes and edges, not yet something to launch.
class Graph {
public:
    /// Takes the graph over.
    explicit Graph(cudaGraph_t graph) : handle_(graph) {}
    [[nodiscard]] cudaGraph_t get() const { return handle_.get(); }
    /// Throws: DeviceError. Cost: O(nodes).
    [[nodiscard]] GraphNodeCounts count_nodes() const;

private:
    UniqueHandle<cudaGraph_t, GraphTraits> handle_;
};

/// A capture that is going on: what its stream, and those that join it, are given is recorded and does not run. Calls
/// that a capture does not allow fail on this thread only. A capture that is left without `finish`, by an exception for
/// example, is ended and what it recorded is thrown away. Stays where it is: it stands for a state of the stream.
class Capture {
public:
    /// Throws: DeviceError.
    explicit Capture(StreamRef stream);
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    Capture(Capture&&) = delete;
    Capture& operator=(Capture&&) = delete;
    ~Capture();

    [[nodiscard]] StreamRef stream() const { return stream_; }
    /// Ends the capture. Throws: DeviceError if a stream that joined has not been joined back, or a call inside was not
    /// allowed; the capture is over then too. std::logic_error if it is finished already.
    [[nodiscard]] Graph finish();

private:
    StreamRef stream_;
    bool finished_ = false;
};

/// While this lives, calls that a capture does not allow, as cudaMalloc and cudaEventQuery, are let through on this
/// thread, and are no part of the graph.
class OutsideCapture {
public:
    /// Throws: DeviceError.
    OutsideCapture();
    OutsideCapture(const OutsideCapture&) = delete;
    OutsideCapture& operator=(const OutsideCapture&) = delete;
    OutsideCapture(OutsideCapture&&) = delete;
    OutsideCapture& operator=(OutsideCapture&&) = delete;
    ~OutsideCapture();

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

struct GraphExecTraits {
    static cudaError_t release(cudaGraphExec_t exec) { return cudaGraphExecDestroy(exec); }
    static constexpr const char* kName = "an executable graph";
};

/// A graph made ready to launch, any number of times. The graph it was made from may go.
class GraphExec {
public:
    /// Throws: DeviceError. Cost: host time by the number of nodes (0.14 ms for 24), and memory of the device.
    explicit GraphExec(const Graph& graph);
    [[nodiscard]] cudaGraphExec_t get() const { return handle_.get(); }
    /// Puts what a launch needs on the device, so that the first launch costs what the others do. Throws: DeviceError.
    void upload(StreamRef stream) const;
    /// Runs the graph behind what `stream` has been given; a launch waits for the one before. Throws: DeviceError.
    void launch(StreamRef stream) const;

private:
    UniqueHandle<cudaGraphExec_t, GraphExecTraits> handle_;
};

}  // namespace stowage::executor
