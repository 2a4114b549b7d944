#include "planner/search/alone.hpp"

#include <utility>

namespace stowage::search {

types::Node machine_of(const types::Scenario& scenario) {
    types::Node node = scenario.hardware.node;
    if (scenario.implementation != types::Implementation::stowage) {
        node.host.gemm_call = node.host.attention_call = {};
        return node;
    }
    node.host.framework_forward = node.host.framework_backward = {};
    node.graph.framework_forward = node.graph.framework_backward = {};
    node.host.pinned_allocation_per_gib = {};
    return node;
}

std::optional<AloneRun> run_alone(const Job& job, const OffloadChoice& choice, std::int64_t pipeline_rank, double duty,
                                  bool trace) {
    const layers::StageLayers& stage = job.stages.at(static_cast<std::size_t>(pipeline_rank));
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel, duty);
    AloneRun run;
    run.lowered = program::lower(stage, job.scenario.microbatches(), choice, job.scenario.rules, durations);
    if (run.lowered.chunk_mismatch) return std::nullopt;
    simulator::SimulationOptions options;
    options.allocator = job.allocator;
    options.alone = true;
    options.trace = trace;
    simulator::Prediction prediction = simulator::simulate({&run.lowered.program}, machine_of(job.scenario), options);
    run.prediction = std::move(prediction.ranks.front());
    return run;
}

}  // namespace stowage::search
