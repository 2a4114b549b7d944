#pragma once

#include <optional>
#include <vector>

#include "planner/memory/pinned_pool.hpp"
#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"
#include "planner/simulator/rank_simulator.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

/// What a run of one rank predicts: the first iteration (record) and a later one (steady); with CUDA graphs also one
/// before the capture (eager) and the capture.
struct RankPrediction {
    StageResult setup;
    StageResult record;
    StageResult eager;
    StageResult capture;
    StageResult steady;
    memory::PinnedStats pinned;  ///< after the run
    StageTimeline timeline;      ///< of the steady stage, if traced
};

/// What a run of all pipeline ranks predicts.
struct Prediction {
    types::Nanoseconds record_time{0};  ///< of the slowest rank
    types::Nanoseconds eager_time{0};   ///< zero without graphs
    types::Nanoseconds capture_time{0};
    types::Nanoseconds step_time{0};    ///< steady, of the slowest rank
    std::vector<RankPrediction> ranks;  ///< by pipeline rank
    /// The pipeline rank that ran out of memory; nothing else is valid then.
    std::optional<std::size_t> out_of_memory;
    std::optional<Shortage> shortage;  ///< of that rank, if the device was full
};

/// Runs the programs of all pipeline ranks together in virtual time: set-up, the first iteration, then steady
/// iterations of which the last is reported: the first one in which no rank asks the device for memory, at most the
/// second. Every stage starts on all ranks at once. Shapes: one program a pipeline rank, in order; all on nodes like
/// `node`. Cost: O(operations); about 10^7 operations a second on one core. Throws: std::logic_error if the programs
/// deadlock or leave memory behind (our bug).
Prediction simulate(const std::vector<const program::StepProgram*>& programs, const types::Node& node,
                    const SimulationOptions& options = {});

}  // namespace stowage::simulator
