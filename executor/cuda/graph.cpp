#include "executor/cuda/graph.hpp"

#include <utility>
#include <vector>

#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "counting the nodes of a graph");
    std::vector<cudaGraphNode_t> nodes(count);
    if (count != 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "reading the nodes of a graph");
    nodes.resize(count);
    return nodes;
}

std::size_t& count_of(GraphNodeCounts& counts, cudaGraphNodeType type) {
    switch (type) {
        case cudaGraphNodeTypeKernel: return counts.kernels;
        case cudaGraphNodeTypeMemcpy: return counts.memcpys;
        case cudaGraphNodeTypeMemset: return counts.memsets;
        case cudaGraphNodeTypeEventRecord: return counts.event_records;
        case cudaGraphNodeTypeWaitEvent: return counts.event_waits;
        case cudaGraphNodeTypeHost: return counts.host_functions;
        default: return counts.others;
    }
}

/// Graphs inside graphs are visited by a list of those to do rather than by recursion.
GraphNodeCounts count(cudaGraph_t outermost) {
    GraphNodeCounts counts;
    std::vector<cudaGraph_t> to_do = {outermost};
    while (!to_do.empty()) {
        cudaGraph_t graph = to_do.back();
        to_do.pop_back();
        for (cudaGraphNode_t node : nodes_of(graph)) {
            cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
            check(cudaGraphNodeGetType(node, &type), "reading the kind of a node of a graph");
            if (type != cudaGraphNodeTypeGraph) {
                ++count_of(counts, type);
                continue;
            }
            cudaGraph_t inner = nullptr;
            check(cudaGraphChildGraphNodeGetGraph(node, &inner), "reading a graph inside a graph");
            to_do.push_back(inner);
        }
    }
    return counts;
}

}  // namespace

GraphNodeCounts Graph::count_nodes() const { return count(handle_.get()); }

Capture::Capture(StreamRef stream) : stream_(stream) {
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "beginning to capture a stream");
}

Capture::~Capture() {
    if (finished_) return;
    cudaGraph_t graph = nullptr;
    // Its error is what made us come here, or says that streams were left unjoined: neither is news.
    static_cast<void>(cudaStreamEndCapture(stream_.get(), &graph));
    static_cast<void>(cudaGetLastError());
    if (graph != nullptr) report_release(cudaGraphDestroy(graph), "the graph of an abandoned capture");
}

Graph Capture::finish() {
    STOWAGE_CHECK(!std::exchange(finished_, true), "a capture is finished once");
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream_.get(), &graph);
    Graph captured(graph);
    check(code, "ending the capture of a stream");
    if (graph == nullptr)
        throw DeviceError("the capture of a stream was broken by a call that a capture does not allow");
    return captured;
}

OutsideCapture::OutsideCapture() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "stepping out of a capture"); }

OutsideCapture::~OutsideCapture() {
    report_release(cudaThreadExchangeStreamCaptureMode(&mode_), "the step out of a capture");
}

GraphExec::GraphExec(const Graph& graph) {
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph.get(), 0), "making a graph executable");
    handle_ = UniqueHandle<cudaGraphExec_t, GraphExecTraits>(exec);
}

void GraphExec::upload(StreamRef stream) const {
    check(cudaGraphUpload(handle_.get(), stream.get()), "uploading a graph");
}

void GraphExec::launch(StreamRef stream) const {
    check(cudaGraphLaunch(handle_.get(), stream.get()), "launching a graph");
}

}  // namespace stowage::executor
