#pragma once

// What one rank does in one training step, in the order the host issues it.
//
// A program is a sequence of instances of shared bodies. A body is one layer in one direction under one set of policy
// decisions: all layers and microbatches that behave alike share it, so that a model of 61 layers and 128 microbatches
// is some thousands of small instances, not a million operations. Tensors live in frames: one frame is one layer of one
// chunk, its slots are the layer's tensors, then one reload buffer and one pinned buffer for each saved tensor. An
// operation names a slot and whose frame it is (its own, the neighbour's, or a reload target's); the instance says
// which frames those are.
//
// Worked example, two layers, one microbatch: frames 0 and 1. forward(0) allocates slot `input` of frame 1 as its
// output; forward(1) uses it. backward(1) may reload a group of frame 0: a body whose scope 2 is bound to frame 0 by
// the instance.
//
// Tested by: tests/planner/program/.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/operation.hpp"

namespace stowage::program {

enum class BodyId : std::uint32_t {};
constexpr std::size_t index(BodyId id) { return static_cast<std::size_t>(id); }

struct Body {
    std::string name;
    std::vector<Operation> operations;
};

struct Instance {
    BodyId body{};
    std::int32_t microbatch = -1;
    std::int32_t layer = -1;         ///< number of the transformer layer in the model, -1 for none
    std::uint32_t frames_begin = 0;  ///< in StepProgram::scope_frames: the frame of each scope
};

/// The stages of a run that a program has instances for. `record` is the first iteration (Megatron's offload warm-up:
/// everything moves), `steady` every later one.
enum class RunStage : std::uint8_t { setup, record, steady };
inline constexpr int kRunStageCount = 3;

struct StepProgram {
    std::int64_t pipeline_rank = 0;
    std::vector<std::string> labels;  ///< what Operation::detail names, for compute, copy, collective, peer_transfer
    std::vector<Body> bodies;
    std::vector<Instance> sequence[kRunStageCount];
    std::vector<std::uint32_t> scope_frames;
    std::vector<std::uint32_t> frame_slots;   ///< first slot of each frame; one more entry than frames
    std::vector<std::uint32_t> frame_events;  ///< first event of each frame; one more entry than frames
    std::vector<std::uint64_t> pinned_keys;   ///< what a pool key number stands for (bytes and type); index 0 is unused

    [[nodiscard]] const std::vector<Instance>& instances(RunStage stage) const {
        return sequence[static_cast<std::size_t>(stage)];
    }
    [[nodiscard]] std::uint32_t slot_count() const { return frame_slots.back(); }
    [[nodiscard]] std::uint32_t event_count() const { return frame_events.back(); }
    /// Operations of one stage, instances expanded.
    [[nodiscard]] std::int64_t operation_count(RunStage stage) const;
};

}  // namespace stowage::program
