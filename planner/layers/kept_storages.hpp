#pragma once

// Every storage that a stage keeps for the backwards of one microbatch, and what it may be called.
//
// Tested by: tests/planner/layers/recorded_groups_test.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// A module of a layer; -1 where it is of no transformer layer.
struct LayerModule {
    std::int64_t layer = -1;
    std::string module;
    friend auto operator<=>(const LayerModule&, const LayerModule&) = default;
};

struct KeptStorage {
    Bytes bytes;
    std::vector<LayerModule> names;  ///< who saves it, then who made it
};

/// Persistent ones left out. A frame that runs its forward twice keeps what its span was given, nothing else.
std::vector<KeptStorage> kept_storages(const StageLayers& stage);

}  // namespace stowage::layers
