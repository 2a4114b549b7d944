#pragma once

// Layers out of a recording of a process that only says which module each kernel belongs to, in which phase, layer and
// microbatch (an injected recorder with NVTX ranges): implementation `recorded`.
//
// A layer's forward is its recorded forward, kernel by kernel; what a module saves is there from its first kernel on
// and saved behind its last one. Its backward reads a module's tensors before the module's first kernel there and
// forgets them behind its last. Times are means over layers, microbatches and steps. Layers with the same modules,
// kernels and tensors share a script.
//
// What a recording does not say is taken from the stage that it replaces layers of: the hidden state between layers,
// embedding and output layer, weights and optimizer. Temporaries inside a layer are not recorded as such, so they are
// missing: peaks are those of what is kept.
//
// Class of a kernel, from its name: products of matrices (gemm, cutlass, nvjet, cublas, xmma), attention (attention,
// flash, fmha, sdpa), else bound by memory, with the traffic that the memory's bandwidth moves in that time.
//
// Tested by: tests/planner/program/recorded_layers_test.cpp.

#include <cstdint>
#include <string_view>

#include "planner/layers/layer_script.hpp"
#include "planner/program/recorded_operations.hpp"
#include "scenarios/recording/recording.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::program {

/// By the name of a kernel.
types::KernelClass class_of_kernel(std::string_view name);

/// Replaces the transformer layers of `stage` that were recorded, and returns how many frames that are.
/// Throws: types::InputError, without the file's name, if the stage runs layers in graphs of their own or two chunks
/// side by side, which needs more of a layer than a recording tells.
std::int64_t use_recorded_layers(layers::StageLayers& stage, const RecordedOperations& operations,
                                 const recording::Recording& recording, const types::Device& device);

}  // namespace stowage::program
