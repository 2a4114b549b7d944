#pragma once

// From the operands of a call to the kernel that computes it: layers of experts, but for their matrix products; and the
// two calls of tensor parallelism that move rows.

#include <cuda_runtime_api.h>

#include <span>

#include "executor/workload/workload.hpp"

namespace stowage::executor {

/// Whether `launch_moe` takes the call. counts_to_host is not among them: host_counts.hpp.
bool is_moe(layers::Call call);

/// Throws: types::UnsupportedError if no kernel here takes the sizes. Accepts every other call.
void require_moe_supported(layers::Call call, const layers::CallSizes& sizes);

/// Throws: std::logic_error if the operands are not those of the call. A failed launch is left as the last error.
void launch_moe(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream);

}  // namespace stowage::executor
