#pragma once

// What the planner reads off a stage's layers, in the form of what a recording says.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::profiler::testing {

/// Module, layer, microbatch, virtual stage.
using GroupPlace = std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>;
/// Bytes of each tensor, in the order of the saves.
using GroupTensors = std::map<GroupPlace, std::vector<std::int64_t>>;

/// All modules whose tensors may leave.
types::ModuleSet movable_modules();

/// Of `modules`, for every microbatch.
GroupTensors planned_groups(const layers::StageLayers& stage, std::int64_t microbatches,
                            const types::ModuleSet& modules);
/// Of a recording, those that left.
GroupTensors moved_groups(const std::vector<recording::Group>& groups);
/// Of a recording, all.
GroupTensors kept_groups(const std::vector<recording::Group>& groups);
/// What `more` has and `less` has not; a failure of the test if `less` has anything else.
GroupTensors difference(const GroupTensors& more, GroupTensors less);

}  // namespace stowage::profiler::testing
