#pragma once

// What the peer's process does and a lowered program cannot say, since Megatron does otherwise.
//
// - Weights are made in fp32 and turned into bf16 one after the other: the freed fp32 segments are what activations
//   are placed in later.
// - cuBLAS takes its two workspaces (forward, and autograd's thread) with the first GEMM of each.
// - Gradients come with the first microbatch of a step, are added to by the others, and go at the step's end; the
//   input's comes with the first backward and stays.
// - The output lives until the next one replaces it.
// - The host waits for the device at the end of every iteration, which is measured by itself.
// - In the first iteration the chip is cool, and the first backward waits for cuDNN's plan: the device runs dry there.
//
// They decide no peak of allocated memory but where everything lies, what is still held for a copy when the next tensor
// is allocated, and so how much is reserved.

#include "planner/layers/layer_script.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::testing {

/// Rewrites the program of the lowered `stage` of peer_stage.hpp: set-up, first iteration and later ones.
void run_as_the_peer(program::StepProgram& program, const layers::StageLayers& stage);

}  // namespace stowage::testing
