#pragma once

// Tensors on their way into FP8: what they are multiplied with, and the rounding, with rows as columns where a product
// sums over rows.
//
// Tested by: tests/executor/workload/fp8_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor::kernels {

/// e4m3: up to 448, three bits behind the leading one. e5m2: up to 57344, two bits.
enum class Fp8Format : std::uint8_t { e4m3, e5m2 };

/// scales[1] = the format's largest number / the largest |x|, scales[0] = 1 / scales[1]: both 1 where the largest |x|
/// is 0 or not finite; a quotient beyond fp32 becomes its largest number. NaN counts as nothing. `partials` holds
/// `count` numbers.
void fp8_scale(const void* x, Fp8Format format, float* scales, float* partials, Extent extent, std::int64_t count,
               cudaStream_t stream);

/// Rounds x * scales[1] to the nearest number of the format, ties to even, what is over its largest to that; NaN stays.
/// `plain` as x lies, `transposed` [columns, rows]; either may be null. Rows and columns are multiples of 16.
void fp8_quantize(const void* x, const float* scales, Fp8Format format, void* plain, void* transposed, Extent extent,
                  cudaStream_t stream);

}  // namespace stowage::executor::kernels
