#pragma once

// Where the kernels of a script stand: which name each goes by, so that the same kernel is found in another script, or
// in a recording.
//
// Tested by: tests/planner/program/measured_durations_test.cpp.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::program {

/// What a kernel is called within one pass of one layer: forward and backward of one microbatch.
struct KernelName {
    layers::Part part{};
    layers::Phase phase{};
    std::string work;              ///< Kernel::name
    std::uint32_t occurrence = 0;  ///< among those of the same part, phase and work
    friend auto operator<=>(const KernelName&, const KernelName&) = default;
};

struct KernelPlace {
    KernelName name;
    std::size_t kernel = 0;  ///< index into LayerScript::kernels
};

/// In the order in which they run: forward, then backward. `again`: the forward runs once more in front of the
/// backward, in phase recompute.
std::vector<KernelPlace> kernel_places(const layers::LayerScript& script, bool again = false);

/// Whether frame `frame` runs its forward twice.
bool runs_again(const layers::ChunkLayers& chunk, std::size_t frame);

}  // namespace stowage::program
