// How one rank captures CUDA graphs and launches them.
//
// While a graph is captured the host issues as usual, but nothing runs: memory comes from the graphs' pool, and what is
// left is an executable graph in the driver's memory. A launch is one call; the nodes go to the device all at once, in
// the order of the capture. They keep the order that waits between the captured streams gave them. The graph's main
// stream is the one it is launched on; on the manager's graph stream the copies run on the graph's own branches, which
// eager copies do not wait for, and a graph launched there later waits for the branches that the one before has joined.
//
// Worked example: a graph of one kernel of 100 us, a copy of 300 us that waits for it, an external event behind the
// kernel, and the join. The main stream, waiting for the event, goes on at 100 us; the next graph on that stream starts
// at 400 us.
//
// Tested by: tests/planner/simulator/graph_replay_test.cpp.

#include <algorithm>
#include <cmath>

#include "planner/simulator/rank_simulator.hpp"
#include "planner/simulator/work_tag.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::simulator {
namespace {

using program::Operation;

constexpr memory::PoolId kGraphPool{1};

/// The stream that a captured operation's work runs on when its graph is launched on `launched_on`.
Stream replayed(Stream captured, Stream launched_on) {
    if (captured == Stream::main) return launched_on;
    if (launched_on != Stream::graph) return captured;
    if (captured == Stream::d2h) return Stream::graph_d2h;
    return captured == Stream::h2d ? Stream::graph_h2d : captured;
}

}  // namespace

/// All graphs share one pool. Each capture begins with an idle device and an empty cache.
bool RankSimulator::begin_graph() {
    STOWAGE_CHECK(!capturing_, "a graph is captured inside another");
    if (!wait_for_device()) return false;
    const std::int64_t before = device_calls();
    const bool entered = graphs_.enter(allocator_, kGraphPool, static_cast<memory::Stream>(Stream::capture));
    charge_device_calls(before);
    if (!entered) {
        out_of_memory_ = true;
        shortage_ = Shortage{stage_, allocator_.fragmentation(memory::GraphRegistry::kGeneratorTensor,
                                                              static_cast<memory::Stream>(Stream::capture))};
        return false;
    }
    for (const Stream stream : {Stream::d2h, Stream::h2d})
        allocator_.join_capture(kGraphPool, static_cast<memory::Stream>(stream));
    capture_order_.begin();
    capturing_ = true;
    return true;
}

void RankSimulator::end_graph() {
    STOWAGE_CHECK(capturing_, "a graph ends that was not begun");
    graphs_.leave(allocator_, kGraphPool);
    capturing_ = false;
    const program::Graph& graph = program_.graphs[instance().graph];
    const types::GraphCosts& costs = node_.graph;
    executable_graphs_ += costs.memory_per_graph + Bytes{graph.nodes * costs.memory_per_node.count} +
                          Bytes{(graph.branches - 1) * costs.memory_per_branch.count};
    host_ += graph.nodes * costs.instantiate_per_node.count();
}

Tick RankSimulator::launch_cost(const program::Graph& graph) const {
    const types::GraphCosts& costs = node_.graph;
    return costs.launch.count() + graph.nodes * costs.launch_per_node.count() +
           (graph.branches - 1) * costs.launch_per_branch.count();
}

bool RankSimulator::launch_graph(const Operation& operation) {
    if (!await_launch_queue(operation.stream, 1)) return false;
    const program::Graph& graph = program_.graphs[instance().graph];
    const bool backward = operation.phase == layers::Phase::backward;
    const types::GraphCosts& costs = node_.graph;
    host_ += launch_cost(graph) + (backward ? costs.framework_backward : costs.framework_forward).count();
    ++graph_launches_;
    const std::vector<program::Instance>& captured = program_.instances(RunStage::capture);
    for (std::uint32_t i = graph.begin; i < graph.end; ++i) {
        const std::vector<Operation>& nodes = program_.bodies[program::index(captured[i].body)].operations;
        for (std::size_t node = 0; node < nodes.size(); ++node)
            replay(captured[i], nodes[node], operation.stream, node_tag(instance_, i - graph.begin, node));
    }
    return true;
}

void RankSimulator::replay(const program::Instance& instance, const Operation& node, Stream launched_on,
                           std::uint64_t tag) {
    const Stream stream = replayed(node.stream, launched_on);
    switch (node.kind) {
        case OperationKind::compute: submit_kernel_node(node, stream, tag); break;
        case OperationKind::copy: submit_copy_node(node, stream, tag); break;
        case OperationKind::collective:
        case OperationKind::peer_transfer: submit(node, stream, tag); break;
        case OperationKind::event_record:
            program_events_[event_of(instance, node)] = static_cast<std::uint64_t>(device_.record(stream, host_)) + 1;
            break;
        case OperationKind::event_wait: {
            const std::uint64_t event = program_events_[event_of(instance, node)];
            STOWAGE_CHECK(event != 0, "a graph waits for an event that it did not record");
            device_.wait(stream, static_cast<EventId>(event - 1), host_);
            break;
        }
        case OperationKind::stream_wait:
            device_.wait(stream, device_.record(replayed(node.other, launched_on), host_), host_);
            break;
        default: break;  // memory and host work happened once, in the capture
    }
}

/// Between the nodes of a graph the device spends less on a kernel's start than between launches.
void RankSimulator::submit_kernel_node(const Operation& node, Stream stream, std::uint64_t tag) {
    const types::Nanoseconds overhead = node_.graph.node_overhead;
    const types::Nanoseconds saved =
        overhead.count() > 0 ? node_.device.kernel_overhead - overhead : types::Nanoseconds{0};
    const Tick length = std::max<Tick>(0, (node.duration - saved).count());
    device_.compute(stream, node.kernel_class, length, host_, tag);
}

/// A graph's copies run beside its kernels.
void RankSimulator::submit_copy_node(const Operation& node, Stream stream, std::uint64_t tag) {
    const bool out = node.direction == program::Direction::device_to_host;
    const double share = out ? node_.graph.copy_device_to_host : node_.graph.copy_host_to_device;
    const auto length = static_cast<Tick>(std::llround(static_cast<double>(node.duration.count()) / share));
    device_.copy(stream, node.direction, node.bytes.count, length, host_, tag);
}

bool RankSimulator::give_cache_back() {
    if (!wait_for_device()) return false;
    const std::int64_t before = device_calls();
    allocator_.empty_cache();
    charge_device_calls(before);
    return true;
}

}  // namespace stowage::simulator
