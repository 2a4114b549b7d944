#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace stowage::benchmarks {

/// Adds one to each of `count` numbers, four of them a thread.
cudaError_t launch_increment(float* data, std::size_t count, cudaStream_t stream);

}  // namespace stowage::benchmarks
