#pragma once

// From the operands of a call to the kernel that computes it: packing and unpacking of multi-latent attention.

#include <cuda_runtime_api.h>

#include <span>

#include "executor/workload/workload.hpp"

namespace stowage::executor {

/// Whether `launch_latent_pack` takes the call.
bool is_latent_pack(layers::Call call);

/// Throws: types::UnsupportedError if no kernel here takes the sizes. Accepts every other call.
void require_latent_pack_supported(layers::Call call, const layers::CallSizes& sizes);

/// Throws: std::logic_error if the operands are not those of the call. A failed launch is left as the last error.
void launch_latent_pack(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream);

}  // namespace stowage::executor
