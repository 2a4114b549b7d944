#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/memory/allocator_config.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/lowering.hpp"
#include "planner/program/step_times.hpp"
#include "planner/simulator/simulator.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::search {

using types::Bytes;
using types::Nanoseconds;
using types::OffloadChoice;

struct RecordingUse;

/// A scenario made ready: the layers of every pipeline rank, built once and lowered again for each choice.
struct Job {
    types::Scenario scenario;
    memory::AllocatorConfig allocator;
    std::vector<layers::StageLayers> stages;        ///< by pipeline rank
    std::vector<double> duties;                     ///< by pipeline rank (duty.hpp); none: all 1
    std::shared_ptr<const RecordingUse> recording;  ///< whose times the kernels have; none: they are estimated

    /// The share of the time that the rank's rates belong to.
    [[nodiscard]] double duty(std::size_t rank) const { return duties.empty() ? 1 : duties.at(rank); }
};

/// Cost: where the hardware's rates follow the duty, some simulations of each rank (duty.hpp).
/// Throws: types::UnsupportedError naming everything in the scenario that this version cannot plan.
Job prepare(types::Scenario scenario);

/// What one choice costs one pipeline rank.
struct RankOutcome {
    std::int64_t pipeline_rank = 0;
    std::int64_t layers = 0;        ///< transformer layers of the stage
    Bytes static_bytes{};           ///< weights, gradients, optimizer states, workspaces
    Bytes record_peak_allocated{};  ///< the first iteration, in which everything moves
    Bytes record_peak_reserved{};
    Bytes eager_peak_allocated{};  ///< with graphs: an iteration before the capture
    Bytes eager_peak_reserved{};
    Bytes capture_peak_allocated{};  ///< the capture
    Bytes capture_peak_reserved{};
    Bytes steady_peak_allocated{};
    Bytes steady_peak_reserved{};
    Bytes allocated_between_steps{};  ///< after a steady step
    Bytes private_pools{};            ///< of the steady reserved bytes, those of the graphs' pool
    Bytes executable_graphs{};        ///< the driver's memory for graphs, beside what is reserved
    std::int64_t graphs = 0;          ///< captured
    std::int64_t graph_launches = 0;  ///< in a steady step
    std::int64_t graph_inputs = 0;    ///< sets of input buffers that the graphs share
    std::int64_t graph_inputs_without_reuse = 0;
    Bytes pinned_host{};                 ///< pinned memory taken from the system
    Bytes pinned_arena{};                ///< the same buffers in one arena, nothing rounded to a power of two
    Nanoseconds step_time{0};            ///< until this rank is done
    Nanoseconds compute{0};              ///< its main stream busy
    Nanoseconds exposed_copy{0};         ///< its main stream idle for a copy
    Nanoseconds device_to_host_busy{0};  ///< as it ran
    Nanoseconds host_to_device_busy{0};
    Nanoseconds device_to_host_alone{0};  ///< the same copies, each alone on its engine: no schedule moves them faster
    Nanoseconds host_to_device_alone{0};
    std::int64_t cache_flushes =
        0;  ///< in a steady step: the allocator gave its cache back because the device was full
    std::int64_t operations = 0;
    double duty = 1;  ///< that the rates of its GEMMs and its attention belong to
    program::OffloadCounts offloaded;

    /// Over all stages of a run.
    [[nodiscard]] Bytes peak_allocated() const {
        return std::max({record_peak_allocated, eager_peak_allocated, capture_peak_allocated, steady_peak_allocated});
    }
    [[nodiscard]] Bytes peak_reserved() const {
        return std::max({record_peak_reserved, eager_peak_reserved, capture_peak_reserved, steady_peak_reserved});
    }
    /// Of the device: reserved and the driver's memory for graphs.
    [[nodiscard]] Bytes peak_device() const {
        return std::max({record_peak_reserved, eager_peak_reserved, capture_peak_reserved + executable_graphs,
                         steady_peak_reserved + executable_graphs});
    }
    [[nodiscard]] Bytes offloaded_bytes() const;
};

/// What one choice costs.
struct Outcome {
    OffloadChoice choice;
    Nanoseconds step_time{0};
    Nanoseconds record_time{0};
    Nanoseconds eager_time{0};  ///< zero without graphs
    Nanoseconds capture_time{0};
    std::vector<RankOutcome> ranks;
    bool chunk_mismatch = false;   ///< Megatron stops in the second iteration (H3): nothing above is valid
    bool stopped = false;          ///< the simulation met the memory limit of its options: nothing above is valid
    bool released_static = false;  ///< Megatron fails: a forced release empties a buffer of a graph (H4)
    std::optional<simulator::Shortage> shortage;  ///< why it stopped, if at the end of the device's memory
    std::size_t short_rank = 0;                   ///< the pipeline rank that then had no memory
    bool released_while_saved = false;  ///< Megatron fails in backward: a forced release empties a tensor still needed

    /// Whether Megatron runs it, and the simulation came to its end.
    [[nodiscard]] bool runs() const { return !chunk_mismatch && !released_while_saved && !released_static && !stopped; }
    /// The rank that takes most of its device.
    [[nodiscard]] const RankOutcome& fullest_rank() const;
    /// The highest allocated peak of any rank.
    [[nodiscard]] Bytes largest_allocated() const;
    [[nodiscard]] Bytes offloaded_bytes() const;
};

/// Lowers and simulates one choice on all pipeline ranks, without a memory limit unless the options give one.
/// A pure function of its arguments; safe to call from several threads.
Outcome evaluate(const Job& job, const OffloadChoice& choice, const simulator::SimulationOptions& options = {});

/// The same, keeping what a trace needs: the programs and the timelines of the last steady step.
struct TracedOutcome {
    Outcome outcome;
    std::vector<program::StepProgram> programs;
    std::vector<program::StageTimeline> timelines;
};
TracedOutcome evaluate_traced(const Job& job, const OffloadChoice& choice);

/// One pipeline rank as an executor runs it, alone on one GPU: no bubble, only the time of its own transfers.
struct SliceOutcome {
    RankOutcome rank;
    program::StepProgram program;
    program::StageTimeline timeline;  ///< of a steady step
    program::StepTimes times;
};
/// Result: nothing if Megatron stops in the second iteration (H3). Cost: O(operations of the rank).
/// Throws: std::out_of_range if the job has no such pipeline rank.
std::optional<SliceOutcome> evaluate_slice(const Job& job, const OffloadChoice& choice, std::int64_t pipeline_rank);

/// Pinned bytes on the node that holds most: every global rank takes what its pipeline rank takes.
Bytes pinned_on_fullest_node(const Job& job, const Outcome& outcome);
/// The same if each rank's buffers lay in one arena.
Bytes pinned_arenas_on_fullest_node(const Job& job, const Outcome& outcome);

}  // namespace stowage::search
