#include "planner/search/job.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/support.hpp"
#include "planner/memory/pinned_demand.hpp"
#include "planner/search/allocator_environment.hpp"
#include "planner/search/alone.hpp"
#include "planner/search/duty.hpp"
#include "planner/simulator/workers.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::search {
namespace {

struct LoweredRanks {
    std::vector<program::Lowered> ranks;
    bool runs = true;
};

LoweredRanks lower_all(const Job& job, const OffloadChoice& choice, int threads) {
    LoweredRanks lowered;
    lowered.ranks.resize(job.stages.size());
    simulator::Workers workers(std::max(1, std::min(threads, static_cast<int>(job.stages.size()))));
    workers.run(job.stages.size(), [&](std::size_t rank) {
        const program::Durations durations(job.scenario.hardware, job.scenario.parallel, job.duty(rank));
        lowered.ranks[rank] =
            program::lower(job.stages[rank], job.scenario.microbatches(), choice, job.scenario.rules, durations);
    });
    for (const program::Lowered& rank : lowered.ranks) lowered.runs = lowered.runs && !rank.chunk_mismatch;
    return lowered;
}

std::int64_t transformer_layers(const layers::StageLayers& stage) {
    std::int64_t layers = 0;
    for (const layers::ChunkLayers& chunk : stage.chunks)
        layers += std::count_if(chunk.layer_numbers.begin(), chunk.layer_numbers.end(),
                                [](std::int64_t number) { return number >= 0; });
    return layers;
}

RankOutcome describe(const layers::StageLayers& stage, const program::Lowered& lowered,
                     const simulator::RankPrediction& prediction) {
    RankOutcome rank;
    rank.pipeline_rank = stage.pipeline_rank;
    rank.layers = transformer_layers(stage);
    rank.static_bytes = layers::state_bytes(stage).total();
    rank.record_peak_allocated = prediction.record.peak_allocated;
    rank.record_peak_reserved = prediction.record.peak_reserved;
    rank.eager_peak_allocated = prediction.eager.peak_allocated;
    rank.eager_peak_reserved = prediction.eager.peak_reserved;
    rank.capture_peak_allocated = prediction.capture.peak_allocated;
    rank.capture_peak_reserved = prediction.capture.peak_reserved;
    rank.allocated_between_steps = prediction.steady.allocated_after;
    rank.private_pools = prediction.steady.private_pools;
    rank.executable_graphs = prediction.steady.executable_graphs;
    rank.graphs = std::ssize(lowered.program.graphs);
    rank.graph_launches = prediction.steady.graph_launches;
    rank.graph_inputs = lowered.graph_inputs;
    rank.graph_inputs_without_reuse = lowered.graph_inputs_without_reuse;
    rank.steady_peak_allocated = prediction.steady.peak_allocated;
    rank.steady_peak_reserved = prediction.steady.peak_reserved;
    rank.pinned_host = prediction.pinned.reserved + layers::pinned_state_blocks(stage);
    rank.pinned_arena = memory::pinned_arena_size(lowered.program) + layers::state_bytes(stage).pinned_host;
    rank.step_time = prediction.steady.duration;
    rank.compute = prediction.steady.busy[program::index(program::Stream::main)] +
                   prediction.steady.busy[program::index(program::Stream::graph)];
    rank.exposed_copy = prediction.steady.exposed_copy;
    rank.device_to_host_busy = prediction.steady.copy_busy[0];
    rank.host_to_device_busy = prediction.steady.copy_busy[1];
    rank.device_to_host_alone = prediction.steady.copy_alone[0];
    rank.host_to_device_alone = prediction.steady.copy_alone[1];
    rank.cache_flushes = prediction.steady.cache_flushes;
    rank.operations = prediction.steady.operations;
    rank.offloaded = lowered.counts;
    return rank;
}

Outcome finish(const Job& job, const OffloadChoice& choice, const LoweredRanks& lowered,
               const simulator::Prediction& prediction) {
    Outcome outcome;
    outcome.choice = choice;
    outcome.step_time = prediction.step_time;
    outcome.record_time = prediction.record_time;
    outcome.eager_time = prediction.eager_time;
    outcome.capture_time = prediction.capture_time;
    for (std::size_t i = 0; i < job.stages.size(); ++i) {
        outcome.released_while_saved = outcome.released_while_saved || lowered.ranks[i].released_while_saved;
        outcome.released_static = outcome.released_static || lowered.ranks[i].released_static;
        outcome.ranks.push_back(describe(job.stages[i], lowered.ranks[i], prediction.ranks[i]));
        outcome.ranks.back().duty = job.duty(i);
    }
    return outcome;
}

Outcome asserts(const OffloadChoice& choice) {
    Outcome outcome;
    outcome.choice = choice;
    outcome.chunk_mismatch = true;
    return outcome;
}

std::vector<const program::StepProgram*> programs_of(const LoweredRanks& lowered) {
    std::vector<const program::StepProgram*> programs;
    for (const program::Lowered& rank : lowered.ranks) programs.push_back(&rank.program);
    return programs;
}

std::pair<Outcome, simulator::Prediction> predict(const Job& job, const OffloadChoice& choice,
                                                  const LoweredRanks& lowered, simulator::SimulationOptions options) {
    options.allocator = job.allocator;
    simulator::Prediction prediction = simulator::simulate(programs_of(lowered), machine_of(job.scenario), options);
    Outcome outcome = finish(job, choice, lowered, prediction);
    outcome.stopped = prediction.out_of_memory.has_value();
    outcome.shortage = prediction.shortage;
    outcome.short_rank = prediction.out_of_memory.value_or(0);
    return {std::move(outcome), std::move(prediction)};
}

/// The sum over its ranks on the node where it is largest.
Bytes on_fullest_node(const Job& job, const Outcome& outcome, Bytes RankOutcome::*bytes) {
    const types::ParallelLayout& layout = job.scenario.parallel;
    const std::int64_t per_stage = layout.world_size() / layout.pipeline_model_parallel_size;
    const std::int64_t per_node = job.scenario.hardware.node.gpus_per_node;
    Bytes fullest;
    for (std::int64_t first = 0; first < layout.world_size(); first += per_node) {
        Bytes node;
        for (std::int64_t rank = first; rank < std::min(first + per_node, layout.world_size()); ++rank)
            node += outcome.ranks[static_cast<std::size_t>(rank / per_stage)].*bytes;
        fullest = std::max(fullest, node);
    }
    return fullest;
}

}  // namespace

Job prepare(types::Scenario scenario) {
    layers::require_supported(scenario);
    Job job;
    const auto allocator = allocator_environment(scenario);
    if (const auto* wrong = std::get_if<layers::Unsupported>(&allocator))
        throw types::UnsupportedError(wrong->path + ": " + wrong->feature + "\nhint: " + wrong->hint);
    job.allocator = std::get<memory::AllocatorConfig>(allocator);
    job.scenario = std::move(scenario);
    for (std::int64_t rank = 0; rank < job.scenario.parallel.pipeline_model_parallel_size; ++rank)
        job.stages.push_back(layers::build_stage(job.scenario, rank));
    job.duties = settled_duties(job);
    return job;
}

Bytes RankOutcome::offloaded_bytes() const {
    return std::accumulate(offloaded.bytes.begin(), offloaded.bytes.end(), Bytes{});
}

const RankOutcome& Outcome::fullest_rank() const {
    STOWAGE_CHECK(!ranks.empty(), "an outcome that runs has ranks");
    return *std::max_element(ranks.begin(), ranks.end(), [](const RankOutcome& left, const RankOutcome& right) {
        return left.peak_device() < right.peak_device();
    });
}

Bytes Outcome::largest_allocated() const {
    Bytes largest;
    for (const RankOutcome& rank : ranks) largest = std::max(largest, rank.peak_allocated());
    return largest;
}

Bytes Outcome::offloaded_bytes() const {
    Bytes sum;
    for (const RankOutcome& rank : ranks) sum += rank.offloaded_bytes();
    return sum;
}

Outcome evaluate(const Job& job, const OffloadChoice& choice, const simulator::SimulationOptions& options) {
    const LoweredRanks lowered = lower_all(job, choice, options.threads);
    if (!lowered.runs) return asserts(choice);
    return predict(job, choice, lowered, options).first;
}

TracedOutcome evaluate_traced(const Job& job, const OffloadChoice& choice) {
    LoweredRanks lowered = lower_all(job, choice, 1);
    TracedOutcome traced;
    if (!lowered.runs) {
        traced.outcome = asserts(choice);
        return traced;
    }
    simulator::SimulationOptions options;
    options.trace = true;
    auto [outcome, prediction] = predict(job, choice, lowered, options);
    traced.outcome = std::move(outcome);
    for (std::size_t i = 0; i < lowered.ranks.size(); ++i) {
        traced.programs.push_back(std::move(lowered.ranks[i].program));
        traced.timelines.push_back(std::move(prediction.ranks[i].timeline));
    }
    return traced;
}

std::optional<SliceOutcome> evaluate_slice(const Job& job, const OffloadChoice& choice, std::int64_t pipeline_rank) {
    const auto rank = static_cast<std::size_t>(pipeline_rank);
    auto run = run_alone(job, choice, pipeline_rank, job.duty(rank), true);
    if (!run) return std::nullopt;
    SliceOutcome outcome;
    outcome.rank = describe(job.stages[rank], run->lowered, run->prediction);
    outcome.rank.duty = job.duty(rank);
    outcome.timeline = std::move(run->prediction.timeline);
    outcome.times = program::step_times(run->lowered.program, outcome.timeline);
    outcome.program = std::move(run->lowered.program);
    return outcome;
}

Bytes pinned_on_fullest_node(const Job& job, const Outcome& outcome) {
    return on_fullest_node(job, outcome, &RankOutcome::pinned_host);
}

Bytes pinned_arenas_on_fullest_node(const Job& job, const Outcome& outcome) {
    return on_fullest_node(job, outcome, &RankOutcome::pinned_arena);
}

}  // namespace stowage::search
