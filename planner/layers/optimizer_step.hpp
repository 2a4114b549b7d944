#pragma once

#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/padding.hpp"

namespace stowage::layers {

/// What follows the last backward of a step: gradients reduced over their replicas, partial gradients of replicated
/// parameters summed over the tensor-parallel ranks (with sequence parallelism each saw its own tokens), those of a
/// tied embedding summed over the first and the last stage, the norm for clipping, Adam, parameters gathered, gradients
/// cleared. All of it is memory bound. Adam reads the gradient and reads and writes main parameter and two moments (28
/// bytes an element), then main parameters become bf16 ones (6 bytes). Its temporaries are not modelled: in recorded
/// runs the optimizer was never the peak.
LayerScript optimizer_step(const types::Scenario& scenario, const Dimensions& dimensions, std::int64_t pipeline_rank,
                           const std::vector<Parameter>& parameters);

}  // namespace stowage::layers
