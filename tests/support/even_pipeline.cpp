#include "tests/support/even_pipeline.hpp"

#include <string>

namespace stowage::tests {
namespace {

types::Nanoseconds time_of(const EvenPipeline& pipeline, layers::ScriptKind kind, const std::string& kernel) {
    if (kind != layers::ScriptKind::dense_layer) return types::Nanoseconds{0};
    return kernel.find("backward") == std::string::npos ? pipeline.forward_kernel : pipeline.backward_kernel;
}

void set_times(const EvenPipeline& pipeline, layers::LayerScript& script) {
    for (layers::Kernel& kernel : script.kernels) kernel.measured = time_of(pipeline, script.kind, kernel.name);
}

}  // namespace

layers::StageLayers even_stage(const EvenPipeline& pipeline, std::int64_t rank) {
    layers::StageLayers stage =
        synthetic_stage(rank, pipeline.stages, pipeline.layers, pipeline.layer, pipeline.virtual_stages);
    stage.microbatch_group = pipeline.group.value_or(pipeline.stages);
    stage.overlapped_transfers = pipeline.overlapped_transfers;
    if (pipeline.recomputed)
        for (layers::ChunkLayers& chunk : stage.chunks)
            for (std::size_t i = 0; i < chunk.order.size(); ++i)
                if (chunk.layer_numbers[i] >= 0) chunk.recomputed.push_back({i, i});
    for (layers::LayerScript& script : stage.scripts) set_times(pipeline, script);
    set_times(pipeline, stage.optimizer);
    return stage;
}

std::vector<program::Lowered> lower_all(const EvenPipeline& pipeline, const types::Node& node) {
    types::Hardware hardware;
    hardware.node = node;
    types::ParallelLayout layout;
    layout.pipeline_model_parallel_size = pipeline.stages;
    const program::Durations durations(hardware, layout);
    std::vector<program::Lowered> ranks;
    for (std::int64_t rank = 0; rank < pipeline.stages; ++rank) {
        ranks.push_back(program::lower(even_stage(pipeline, rank), pipeline.microbatches, pipeline.choice,
                                       types::RuleSet::main_2026_08, durations));
        for (program::Body& body : ranks.back().program.bodies)
            for (program::Operation& operation : body.operations)
                if (operation.kind == program::OperationKind::peer_transfer) operation.duration = types::Nanoseconds{0};
    }
    return ranks;
}

simulator::Prediction run(const std::vector<program::Lowered>& ranks, const types::Node& node,
                          const simulator::SimulationOptions& options) {
    std::vector<const program::StepProgram*> programs;
    for (const program::Lowered& rank : ranks) programs.push_back(&rank.program);
    return simulator::simulate(programs, node, options);
}

simulator::Prediction run(const EvenPipeline& pipeline, const types::Node& node,
                          const simulator::SimulationOptions& options) {
    return run(lower_all(pipeline, node), node, options);
}

}  // namespace stowage::tests
