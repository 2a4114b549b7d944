#pragma once

// The tensors that a recorded step kept for its backwards, beside those that the layers say.
//
// A recording names a storage after the module that moved or saved it, where somebody said so, else after the one that
// made it; so a storage of the layers has several names: its maker's, and those of all that save it. Storages of equal
// size that share a name are the same one. What is left over on either side is a difference.
//
// Worked example: attention of layer 0 makes its output of 64 bytes, which attn_proj saves: (core_attn, 0) and
// (attn_proj, 0), 64 bytes. A recording with core_attn 64 and core_attn 8 in layer 0 has one tensor of 8 bytes more.
//
// Tested by: tests/planner/layers/recorded_groups_test.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::layers {

/// One module keeps something else for its backward than the layers say, alike in all of `layers`.
struct GroupDifference {
    std::string module;
    std::vector<std::int64_t> layers;  ///< rising; -1: of no transformer layer
    std::vector<Bytes> recorded;       ///< storages of one layer that only the recording has, by size
    std::vector<Bytes> planned;        ///< that only the layers have

    /// What a microbatch needs more in each of these layers than the layers say.
    [[nodiscard]] Bytes more() const;
};

/// A sentence for a plan.
std::string words_of(const GroupDifference& difference);

/// Of the first microbatch that the recording has. `stage`: the layers of the recorded scenario. Parameters are left
/// out on both sides, and what neighbours in the pipeline sent. Result: in the order of modules and layers; empty also
/// if the recording has no groups. Cost: O(tensors^2) within a layer.
std::vector<GroupDifference> group_differences(const recording::Recording& recording, const StageLayers& stage);

}  // namespace stowage::layers
