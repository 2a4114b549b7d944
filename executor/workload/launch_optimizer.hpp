#pragma once

// From the operands of a call to the kernel that computes it: the optimizer's two.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "executor/workload/workload.hpp"

namespace stowage::executor {

/// Whether `launch_optimizer` takes the call.
bool is_optimizer(layers::Call call);

/// Throws: types::UnsupportedError if no kernel here takes the sizes. Accepts every other call.
void require_optimizer_supported(layers::Call call, const layers::CallSizes& sizes);

/// `step`: device memory with the steps taken before this one. Throws: std::logic_error if the operands are not those
/// of the call. A failed launch is left as the last error.
void launch_optimizer(const CallShape& shape, std::span<void* const> buffers, const std::uint64_t* step,
                      cudaStream_t stream);

}  // namespace stowage::executor
