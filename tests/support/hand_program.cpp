#include "tests/support/hand_program.hpp"

#include <set>
#include <utility>

namespace stowage::tests {

using program::Operation;
using program::OperationKind;
using types::literals::operator""_MiB;

program::StepProgram hand_program(std::vector<program::Operation> operations, std::uint32_t slots, std::uint32_t events,
                                  std::uint32_t persistent) {
    program::StepProgram program;
    program.labels = {""};
    program.pinned_keys = {0, 1};
    // Frames: the work's, what persists, the optimizer's; then the end.
    program.frame_slots = {0, slots, slots + persistent, slots + persistent};
    program.frame_events = {0, events, events, events};
    program.persistent_frames = 1;
    program.bodies.push_back({"by hand", std::move(operations)});
    program.scope_frames = {0, 1};
    for (const program::RunStage stage : {program::RunStage::record, program::RunStage::steady})
        program.sequence[static_cast<std::size_t>(stage)] = {{program::BodyId{0}, 0, 0, 0}};
    return program;
}

namespace {

bool is_node(const Operation& operation) {
    const bool works = operation.kind == OperationKind::compute || operation.kind == OperationKind::copy ||
                       operation.kind == OperationKind::collective;
    return works || (operation.kind == OperationKind::event_record && operation.scope == program::kGraphScope);
}

/// Adds a body with one instance of it.
void add(program::StepProgram& program, program::RunStage stage, std::vector<Operation> operations,
         std::uint32_t graph) {
    const auto body = static_cast<program::BodyId>(program.bodies.size());
    program.bodies.push_back({"by hand", std::move(operations)});
    program.sequence[static_cast<std::size_t>(stage)].push_back({body, 0, 0, 0, graph});
}

}  // namespace

program::StepProgram hand_graphs(std::vector<std::vector<Operation>> graphs, const std::vector<Operation>& steady,
                                 std::uint32_t events) {
    program::StepProgram program = hand_program({}, 0, events);
    program.sequence[static_cast<std::size_t>(program::RunStage::steady)].clear();
    // Frames: the work's, what persists, the optimizer's, the graphs'; then the end.
    program.frame_slots = {0, 0, 0, 0, 0};
    program.frame_events = {0, events, events, events, events + 1};
    program.graph_frame = 3;
    for (std::vector<Operation>& operations : graphs) {
        const auto number = static_cast<std::uint32_t>(program.graphs.size());
        program::Graph graph{number, number + 1, 0, 1};
        std::set<program::Stream> streams{program::Stream::main};
        for (const Operation& operation : operations)
            if (is_node(operation)) {
                ++graph.nodes;
                streams.insert(operation.stream);
            }
        graph.branches = static_cast<std::uint32_t>(streams.size());
        program.graphs.push_back(graph);
        operations.insert(operations.begin(), {.kind = OperationKind::graph_begin});
        operations.push_back({.kind = OperationKind::graph_end});
        add(program, program::RunStage::capture, std::move(operations), number);
    }
    for (const Operation& operation : steady) {
        const bool launch = operation.kind == OperationKind::graph_launch;
        add(program, program::RunStage::steady, {operation}, launch ? operation.slot : 0);
    }
    return program;
}

types::Node quiet_node(types::Nanoseconds copy_per_mib) {
    types::Node node;
    node.name = "quiet";
    node.gpus_per_node = 8;
    const types::CopyCurve curve({{1_MiB, copy_per_mib}, {1024_MiB, 1024 * copy_per_mib}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    node.device.memory = types::Bytes{1LL << 60};
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {1e15};
    node.device.attention_forward_bf16 = {1e15};
    node.device.attention_backward_bf16 = {1e15};
    node.nvlink = {{1e12}, types::Nanoseconds{0}};
    node.network = node.nvlink;
    node.host_memory = types::Bytes{1LL << 60};
    return node;
}

}  // namespace stowage::tests
