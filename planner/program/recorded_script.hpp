#pragma once

// One recorded layer as a script; see recorded_layers.hpp.
//
// Tested by: tests/planner/program/recorded_layers_test.cpp.

#include <compare>
#include <map>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::program {

using types::Bytes;
using types::Nanoseconds;

/// One kernel as it was recorded.
struct RecordedKernel {
    layers::Part part{};
    layers::Phase phase{};
    types::KernelClass kind{};
    friend auto operator<=>(const RecordedKernel&, const RecordedKernel&) = default;
};

/// What makes layers alike.
struct RecordedLayer {
    std::vector<RecordedKernel> forward;   ///< in the order in which they were issued
    std::vector<RecordedKernel> backward;  ///< with weight gradients and what runs again
    std::map<layers::Part, std::vector<Bytes>> saved;
    friend auto operator<=>(const RecordedLayer&, const RecordedLayer&) = default;
};

/// `times`: of the forward's kernels, then of the backward's. Ends and parameters are those of `replaced`.
layers::LayerScript recorded_script(const RecordedLayer& layer, const std::vector<Nanoseconds>& times,
                                    const layers::LayerScript& replaced, const types::Device& device);

}  // namespace stowage::program
