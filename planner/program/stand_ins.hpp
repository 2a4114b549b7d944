#pragma once

// Layers whose kernels have no arithmetic here, made executable: every kernel of a stage becomes a stand-in, a call
// that takes the kernel's time, class and bytes (layers::StandInWork). What else a script does, tensors, saves, groups,
// collectives, host waits, stays as it is, so that memory and copies are those of the layers that are stood in for.
//
// A script does not say which tensors a kernel reads and writes. A stand-in takes what the order of steps gives:
//   writes   tensors that were allocated before it and that nothing wrote yet; the layer's output (or input gradient)
//            is written by the last kernel behind its allocation, or, if there is none, by the collective there
//   reads    what was written and not read yet; saved tensors that its backward asked for since the last kernel
//   sums     where it writes nothing: it adds to a buffer of the rank's states
// A collective that the main stream waits for and that finds tensors to write does so too, as long as it takes; others
// are delays. So a tensor is written once, before anything is copied from it, and read at least once. Where operands
// have more bytes than the kernel moves, first parts of them are touched; where they have fewer, the executor reads
// other memory for the rest. Under graphs of layers a captured kernel only takes what its graph owns or is given.
//
// Worked example, the linear of layer_script.hpp: the forward's gemm reads x and writes y; of the backward's kernels
// the first reads dy and the saved x and writes dx, the second, with nothing left to write, adds to the sums.
//
// Length: the kernel's time in the model is start to start; of it the device's own distance between two empty kernels
// is taken off.
//
// Tested by: tests/planner/program/stand_ins_test.cpp, tests/executor/engine/stand_ins_gpu_test.cpp.

#include "planner/layers/layer_script.hpp"
#include "planner/program/durations.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::program {

/// Gives every kernel of `stage` a stand-in's call, also those that say what they compute. States get the roles
/// `parameters` (what tensors of weights are copied from) and `gradients` (the sums) where the stage has none: the two
/// largest ones of set-up. Sizes of buffers and durations stay.
/// Cost: O(steps). Throws: types::UnsupportedError for chunks that run side by side, for a rank without two states, for
/// a layer in which nothing follows the allocation of its output, and for a moved weight that is larger than any
/// state.
void make_stand_ins(layers::StageLayers& stage, const Durations& durations, const types::Device& device);

}  // namespace stowage::program
