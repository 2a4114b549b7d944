#pragma once

// A debugging mode that makes a layer keep more than it needs, to see whether a recording notices.
//
// Tested by: tests/profiler/record/executed_groups_test.cpp.

#include "planner/layers/layer_script.hpp"

namespace stowage::executor {

/// What each layer then saves in addition.
inline constexpr types::Bytes kExtraSave{2LL << 20};

/// In every layer of the stage that has an offload group of `module`, the module saves a tensor that it allocates at
/// its end and that its backward lets go. Nothing writes or reads it.
/// Throws: UnsupportedError under CUDA graphs, whose ranges of steps were chosen before, or if no layer has the module.
void save_one_more(layers::StageLayers& stage, types::Module module);

}  // namespace stowage::executor
