#pragma once

// One pipeline rank by itself on one GPU, as an executor runs it: what its neighbours would do is a delay.

#include <cstdint>
#include <optional>

#include "planner/program/lowering.hpp"
#include "planner/search/job.hpp"
#include "planner/simulator/simulator.hpp"

namespace stowage::search {

struct AloneRun {
    program::Lowered lowered;
    simulator::RankPrediction prediction;
};

/// Lowers and simulates with the rates that belong to `duty`. Result: nothing if Megatron stops in the second iteration
/// (H3). Cost: O(operations of the rank). Throws: std::out_of_range if the job has no such pipeline rank.
std::optional<AloneRun> run_alone(const Job& job, const OffloadChoice& choice, std::int64_t pipeline_rank, double duty,
                                  bool trace);

/// The machine as the scenario's layers use it. No framework stands between stowage's own layers and the launches, and
/// their pinned memory is there before the first step; what their calls of libraries take is included in what a
/// framework adds to its own.
types::Node machine_of(const types::Scenario& scenario);

}  // namespace stowage::search
