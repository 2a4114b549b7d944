#pragma once

// Pipelines whose step time can be written down: equal stages, transfers and everything beside the layers in no time.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::tests {

/// Stages of `layers` synthetic layers on each virtual stage, three kernels in each direction.
struct EvenPipeline {
    std::int64_t stages = 1;
    std::int64_t virtual_stages = 1;
    std::optional<std::int64_t> group;  ///< microbatches a group; default: the stages
    bool overlapped_transfers = true;
    bool recomputed = false;  ///< every layer on its own runs its forward again before its backward
    std::int64_t microbatches = 1;
    std::int64_t layers = 1;
    types::Nanoseconds forward_kernel{1000};
    types::Nanoseconds backward_kernel{1000};
    SyntheticLayer layer;
    types::OffloadChoice choice;

    /// f and b of the closed forms: one microbatch on one rank, all its virtual stages.
    [[nodiscard]] types::Nanoseconds forward() const { return 3 * layers * virtual_stages * forward_kernel; }
    [[nodiscard]] types::Nanoseconds backward() const { return 3 * layers * virtual_stages * backward_kernel; }
};

/// Stage `rank`, its layers timed as asked, embedding, head and optimizer in no time.
layers::StageLayers even_stage(const EvenPipeline& pipeline, std::int64_t rank);

/// The programs of all ranks, transfers between them in no time.
std::vector<program::Lowered> lower_all(const EvenPipeline& pipeline, const types::Node& node);

simulator::Prediction run(const std::vector<program::Lowered>& ranks, const types::Node& node,
                          const simulator::SimulationOptions& options = {});
simulator::Prediction run(const EvenPipeline& pipeline, const types::Node& node,
                          const simulator::SimulationOptions& options = {});

}  // namespace stowage::tests
