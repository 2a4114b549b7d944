#pragma once

// What modules keep for their backwards, told from what happened to memory.
//
// A storage is kept if somebody says so (it is saved, or copied to the host), or if it was allocated in a forward and
// freed, in the same step, outside of forwards: what a forward needs for itself is gone when the next one runs, and
// what outlives the step is a state. The group is the module that saved or moved it, else the one that allocated it.
//
// Worked example: core_attn of layer 0 allocates 64 bytes at 0x100; attn_proj copies [0x100, 0x140) to the host; it is
// freed in the forward. One group (attn_proj, layer 0) with one tensor that was offloaded. Had nobody copied it, and
// had the backward freed it, it were core_attn's. A storage that two modules save stands in both groups under one
// number.
//
// Tested by: tests/profiler/record/tensor_groups_test.cpp, executed_groups_test.cpp (of what the executor does).

#include <vector>

#include "profiler/cupti/raw_events.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::profiler {

/// In the order in which their first tensors were saved or, where nothing says so, allocated.
/// A save of memory that was not allocated in the step is one of a storage that was there before: of its whole extent
/// only what was saved is known. Cost: O(N log N) in the memory events.
std::vector<recording::Group> tensor_groups(const RawStep& step);

}  // namespace stowage::profiler
