#include "tests/support/lower_stage.hpp"

namespace stowage::tests {

program::Lowered lower_stage(const layers::StageLayers& stage, std::int64_t microbatches,
                             const types::OffloadChoice& choice, types::RuleSet rules) {
    constexpr std::int64_t kMiB = 1 << 20;
    types::Hardware machine;
    machine.node.gpus_per_node = 8;
    machine.node.nvlink = {{100e9}, types::Nanoseconds{2000}};
    machine.node.network = {{10e9}, types::Nanoseconds{5000}};
    machine.node.device.memory_bandwidth = {1e12};
    const types::CopyCurve curve(
        {{types::Bytes{kMiB}, types::Nanoseconds{20'000}}, {types::Bytes{2 * kMiB}, types::Nanoseconds{40'000}}});
    machine.node.copy.device_to_host = curve;
    machine.node.copy.host_to_device = curve;
    types::ParallelLayout layout;
    layout.pipeline_model_parallel_size = stage.pipeline_size;
    return program::lower(stage, microbatches, choice, rules, program::Durations(machine, layout));
}

}  // namespace stowage::tests
