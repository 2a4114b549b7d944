#pragma once

#include "planner/layers/dimensions.hpp"
#include "planner/layers/states_list.hpp"

namespace stowage::layers {

/// What a rank holds between steps beside parameters and optimizer: workspaces of cuBLAS and Transformer Engine, dummy
/// gradients, rotary tables, Megatron's global memory buffer, and the tensors that pipeline stages keep.
void add_workspaces(StateList& states, const types::Scenario& scenario, const Dimensions& dimensions,
                    const StageLayers& stage);

/// One cuBLAS workspace of PyTorch: CUBLAS_WORKSPACE_CONFIG of `env` (":size_kib:count", pairs may follow each other)
/// or the library's choice for the device.
Bytes cublas_workspace(const types::Scenario& scenario);

}  // namespace stowage::layers
