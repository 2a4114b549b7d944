#pragma once

// From the operands of a call to the kernel that computes it: everything but matrix products and attention.

#include <cuda_runtime_api.h>

#include <span>

#include "executor/workload/kernels/kernels.hpp"
#include "executor/workload/workload.hpp"

namespace stowage::executor {

/// Throws: types::UnsupportedError if no kernel here takes the sizes.
void require_supported(layers::Call call, const layers::CallSizes& sizes);

/// Throws: std::logic_error if the operands are not those of the call. A failed launch is left as the last error.
void launch_kernel(const CallShape& shape, std::span<void* const> buffers, const kernels::LoadKey& key,
                   cudaStream_t stream);

}  // namespace stowage::executor
