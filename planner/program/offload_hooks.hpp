#pragma once

// What the offload manager is driven by: where a script's groups lie, its hooks in order, the order of the backwards.

#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/frame_layout.hpp"
#include "planner/program/schedule.hpp"
#include "scenarios/types/offload_choice.hpp"

namespace stowage::program {

/// The frame layout of each script of the stage under one choice of modules.
std::vector<FrameLayout> make_layouts(const layers::StageLayers& stage, const types::OffloadChoice& choice);

/// One of a script's steps that concern the offload manager.
struct Hook {
    layers::StepKind kind{};
    types::Module module{};
    std::size_t step = 0;  ///< its number among the script's
};

/// The steps of a script that concern the offload manager: starts and commits of its groups, and in the backward the
/// reads of what may have left.
std::vector<Hook> hook_steps(const layers::LayerScript& script, const FrameLayout& layout, bool forward);

/// The order in which Megatron's manager expects the backwards: a chunk of the last virtual stage at once, the others
/// as soon as the first and the last stage hold equally many. Result: numbers of `forwards`.
std::vector<std::uint32_t> manager_backward_order(const std::vector<Chunk>& forwards, std::int64_t virtual_stages);

}  // namespace stowage::program
