#pragma once

#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {

/// Eight pairs (x, y), each turned by its angle, or back: cos and sin stand side by side.
template <bool Backward>
__device__ __forceinline__ void turn(float (&x)[8], float (&y)[8], const float4* angles) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        const float4 two = angles[pair];
        const float cosines[2] = {two.x, two.z};
        const float sines[2] = {Backward ? -two.y : two.y, Backward ? -two.w : two.w};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = 2 * pair + half;
            const float a = x[i];
            const float b = y[i];
            x[i] = a * cosines[half] - b * sines[half];
            y[i] = b * cosines[half] + a * sines[half];
        }
    }
}

}  // namespace stowage::executor::kernels
