#pragma once

#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/padding.hpp"

namespace stowage::layers {

/// What a rank holds between steps: parameters, fp32 gradient buffers, fp32 main parameters, Adam moments, workspaces
/// of libraries, and what Megatron keeps by the way. In the order in which they are allocated.
/// `parameters`: of the rank, in model order.
std::vector<StateBuffer> rank_states(const types::Scenario& scenario, const Dimensions& dimensions,
                                     std::int64_t pipeline_rank, const std::vector<Parameter>& parameters);

/// One cuBLAS workspace of PyTorch: CUBLAS_WORKSPACE_CONFIG of `env` (":size_kib:count", pairs may follow each other)
/// or the library's choice for the device.
Bytes cublas_workspace(const types::Scenario& scenario);

}  // namespace stowage::layers
