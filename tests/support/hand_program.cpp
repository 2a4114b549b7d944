#include "tests/support/hand_program.hpp"

#include <utility>

namespace stowage::tests {

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
