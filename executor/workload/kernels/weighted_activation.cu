#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostWarps = kMostThreads / kWarp;

/// silu(x) and its slope.
struct Point {
    float value;
    float slope;
};
__device__ __forceinline__ Point silu(float x) {
    const float sigmoid = 1.0F / (1.0F + __expf(-x));
    return {x * sigmoid, sigmoid * (1.0F + x * (1.0F - sigmoid))};
}

/// A block for each row.
__global__ void __launch_bounds__(kMostThreads)
    forward_kernel(const __nv_bfloat16* __restrict__ g, const float* __restrict__ weights,
                   __nv_bfloat16* __restrict__ a, std::int64_t columns) {
    const std::int64_t row = blockIdx.x;
    const float weight = __ldg(weights + row);
    const __nv_bfloat16* from = g + row * 2 * columns;
    for (std::int64_t column = threadIdx.x * kVector; column < columns; column += blockDim.x * kVector) {
        const Packed packed_gate = load(from + column);
        const Packed packed_value = load(from + columns + column);
        float gate[8];
        float value[8];
        unpack(packed_gate, gate);
        unpack(packed_value, value);
#pragma unroll
        for (int i = 0; i < 8; ++i) value[i] = silu(gate[i]).value * value[i] * weight;
        store(a + row * columns + column, pack(value));
    }
}

/// Reads all that it needs of a place before it writes there, so that dg may be g and a may be da.
__global__ void __launch_bounds__(kMostThreads)
    backward_kernel(const __nv_bfloat16* g, const float* __restrict__ weights, const __nv_bfloat16* da,
                    __nv_bfloat16* dg, __nv_bfloat16* a, float* __restrict__ dweights, std::int64_t columns) {
    __shared__ float shared[kMostWarps];
    const std::int64_t row = blockIdx.x;
    const float weight = __ldg(weights + row);
    float sum = 0.0F;
    for (std::int64_t column = threadIdx.x * kVector; column < columns; column += blockDim.x * kVector) {
        const std::int64_t narrow = row * columns + column;
        const std::int64_t wide = row * 2 * columns + column;
        const Packed packed_gate = load(g + wide);
        const Packed packed_value = load(g + wide + columns);
        const Packed packed_da = load(da + narrow);
        float gate[8];
        float value[8];
        float gradient[8];
        float again[8];
        unpack(packed_gate, gate);
        unpack(packed_value, value);
        unpack(packed_da, gradient);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const Point point = silu(gate[i]);
            const float plain = point.value * value[i];
            again[i] = plain * weight;
            sum += gradient[i] * plain;
            const float weighted = gradient[i] * weight;
            gate[i] = weighted * value[i] * point.slope;
            value[i] = weighted * point.value;
        }
        store(dg + wide, pack(gate));
        store(dg + wide + columns, pack(value));
        store(a + narrow, pack(again));
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) dweights[row] = sum;
}

/// As many threads as a row has vectors, in whole warps.
int threads_of(std::int64_t columns) {
    const std::int64_t vectors = columns / kVector;
    const std::int64_t rounds = (vectors + kMostThreads - 1) / kMostThreads;
    const std::int64_t each = (vectors + rounds - 1) / rounds;
    return static_cast<int>((each + kWarp - 1) / kWarp * kWarp);
}

}  // namespace

void weighted_activation_forward(const void* g, const float* weights, void* a, Extent extent, cudaStream_t stream) {
    forward_kernel<<<static_cast<unsigned>(extent.rows), threads_of(extent.columns), 0, stream>>>(
        static_cast<const __nv_bfloat16*>(g), weights, static_cast<__nv_bfloat16*>(a), extent.columns);
}

void weighted_activation_backward(const WeightedActivationBackward& buffers, Extent extent, cudaStream_t stream) {
    backward_kernel<<<static_cast<unsigned>(extent.rows), threads_of(extent.columns), 0, stream>>>(
        static_cast<const __nv_bfloat16*>(buffers.g), buffers.weights, static_cast<const __nv_bfloat16*>(buffers.da),
        static_cast<__nv_bfloat16*>(buffers.dg), static_cast<__nv_bfloat16*>(buffers.a), buffers.dweights,
        extent.columns);
}

void load_weighted_activation_kernels() { load_each(forward_kernel, backward_kernel); }

}  // namespace stowage::executor::kernels
