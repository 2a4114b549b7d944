#pragma once

#include <cuda_runtime_api.h>

namespace stowage::support {

/// A kernel `busy` of one block that takes about `rounds` times 4 clock cycles and writes one number.
cudaError_t launch_busy(float* result, unsigned rounds, cudaStream_t stream);

}  // namespace stowage::support
