#pragma once

// What parameters hold before the first step: pseudo-random numbers that depend on the seed alone.
//
// Tested by: tests/executor/engine/execution_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stowage::executor::kernels {

/// bf16 values uniform between -limit and limit: value i of `stream` is the same whatever the device.
void fill_uniform(void* values, std::int64_t count, std::uint64_t seed, std::uint64_t stream, float limit,
                  cudaStream_t on);
void fill_constant(void* values, std::int64_t count, float value, cudaStream_t on);

}  // namespace stowage::executor::kernels
