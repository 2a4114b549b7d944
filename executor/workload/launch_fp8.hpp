#pragma once

// From the operands of a call to the kernel that computes it: what turns tensors into FP8.

#include <cuda_runtime_api.h>

#include <span>

#include "executor/workload/workload.hpp"

namespace stowage::executor {

/// Whether `launch_fp8` takes the call.
bool is_fp8_conversion(layers::Call call);

/// Of conversions and of products in FP8. Throws: types::UnsupportedError if no kernel takes the sizes. Accepts every
/// other call.
void require_fp8_supported(layers::Call call, const layers::CallSizes& sizes);

/// Throws: std::logic_error if the operands are not those of the call. A failed launch is left as the last error.
void launch_fp8(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream);

}  // namespace stowage::executor
