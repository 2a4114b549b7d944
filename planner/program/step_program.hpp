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

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/program/operation.hpp"
#include "planner/program/work.hpp"

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
    std::uint32_t graph = 0;         ///< in StepProgram::graphs: what its graph operations begin, end and launch
};

/// The stages of a run that a program has instances for. `record` is the first iteration (Megatron's offload warm-up:
/// everything moves); with CUDA graphs `eager` is a later one before the capture, and `capture` what happens once to
/// make them; `steady` is every iteration after that.
enum class RunStage : std::uint8_t { setup, record, eager, capture, steady };
inline constexpr int kRunStageCount = 5;

/// A captured graph: the operations of the capture stage from instance `begin` up to but not including `end`. Launched,
/// its kernels, copies, collectives, events and waits run; what lies between them of memory and host work does not
/// happen again. Its main stream is the one it is launched on; on `Stream::graph` its copies run on the branches
/// graph_d2h and graph_h2d, beside which eager copies go on.
struct Graph {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t nodes = 0;
    std::uint32_t branches = 1;
    std::uint32_t inputs_begin = 0;     ///< first slot, in the graphs' frame, of the buffers of the forward's inputs
    std::uint32_t gradients_begin = 0;  ///< and of those of its outputs' gradients
};

struct StepProgram {
    std::int64_t pipeline_rank = 0;
    std::vector<std::string> labels;  ///< what Operation::detail names, for compute, copy, collective, peer_transfer
    std::vector<Body> bodies;
    std::vector<Instance> sequence[kRunStageCount];
    std::vector<Graph> graphs;
    std::vector<std::uint32_t> scope_frames;
    std::uint32_t persistent_frames = 0;      ///< from this frame on, memory may outlive a step
    std::uint32_t graph_frame = 0;            ///< of kGraphScope: the graphs' own buffers and their external event
    std::vector<std::uint32_t> frame_slots;   ///< first slot of each frame; one more entry than frames
    std::vector<std::uint32_t> frame_events;  ///< first event of each frame; one more entry than frames
    /// By frame: the frame whose graphs its layer replays, where memory of graphs lies; itself where there is none.
    /// Empty without layer graphs.
    std::vector<std::uint32_t> captured_frames;
    /// Where the parameters of a layer lie among those of the rank, and their gradients among the gradients, in
    /// elements: number p of the layer of frame f at parameter_places[frame_parameters[f] + p]. Empty where nothing has
    /// work.
    std::vector<std::int64_t> parameter_places;
    std::vector<std::uint32_t> frame_parameters;
    std::vector<layers::Fp8Place> fp8_places;  ///< alike, of those with FP8 copies; empty if there are none
    /// Slot of each StowageState in the frame of states; none where the rank lacks it.
    std::array<std::optional<std::uint32_t>, layers::kStowageStates> state_slots;
    std::vector<Work> works;                 ///< what Operation::slot of a compute or copy names; index 0 is unused
    std::vector<std::uint64_t> pinned_keys;  ///< what a pool key number stands for (bytes and type); index 0 is unused

    [[nodiscard]] const std::vector<Instance>& instances(RunStage stage) const {
        return sequence[static_cast<std::size_t>(stage)];
    }
    [[nodiscard]] std::uint32_t slot_count() const { return frame_slots.back(); }
    [[nodiscard]] std::uint32_t event_count() const { return frame_events.back(); }
    /// Operations of one stage, instances expanded.
    [[nodiscard]] std::int64_t operation_count(RunStage stage) const;
};

}  // namespace stowage::program
