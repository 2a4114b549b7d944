#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kSlice = kThreads * kVector;

/// What an activation gives and how it changes with its argument.
struct Point {
    float value;
    float slope;
};

__device__ __forceinline__ Point silu(float x) {
    const float sigmoid = 1.0F / (1.0F + __expf(-x));
    return {x * sigmoid, sigmoid * (1.0F + x * (1.0F - sigmoid))};
}

/// x Phi(x), Phi the normal distribution: the exact GELU, as PyTorch's default.
__device__ __forceinline__ Point gelu(float x) {
    constexpr float kInverseRoot2 = 0.70710678F;
    constexpr float kInverseRoot2Pi = 0.39894228F;
    const float below = 0.5F * (1.0F + erff(x * kInverseRoot2));
    const float density = kInverseRoot2Pi * __expf(-0.5F * x * x);
    return {x * below, below + x * density};
}

struct Place {
    std::int64_t row;
    std::int64_t column;
};

__device__ __forceinline__ Place place() {
    return {static_cast<std::int64_t>(blockIdx.x),
            static_cast<std::int64_t>(blockIdx.y) * kSlice + threadIdx.x * kVector};
}

__global__ void __launch_bounds__(kThreads)
    swiglu_forward_kernel(const __nv_bfloat16* __restrict__ g, __nv_bfloat16* __restrict__ a, std::int64_t columns) {
    const Place at = place();
    if (at.column >= columns) return;
    const __nv_bfloat16* from = g + at.row * 2 * columns + at.column;
    const Packed packed_gate = load(from);
    const Packed packed_value = load(from + columns);
    float gate[8];
    float value[8];
    unpack(packed_gate, gate);
    unpack(packed_value, value);
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] *= silu(gate[i]).value;
    store(a + at.row * columns + at.column, pack(value));
}

__global__ void __launch_bounds__(kThreads)
    gelu_forward_kernel(const __nv_bfloat16* __restrict__ g, __nv_bfloat16* __restrict__ a, std::int64_t columns) {
    const Place at = place();
    if (at.column >= columns) return;
    float x[8];
    unpack(load(g + at.row * columns + at.column), x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = gelu(x[i]).value;
    store(a + at.row * columns + at.column, pack(x));
}

/// A thread reads all it needs before it writes, so that dg may be g and a may be da.
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const __nv_bfloat16* g, const __nv_bfloat16* da, __nv_bfloat16* dg, __nv_bfloat16* a,
                           std::int64_t columns) {
    const Place at = place();
    if (at.column >= columns) return;
    const std::int64_t narrow = at.row * columns + at.column;
    const std::int64_t wide = at.row * 2 * columns + at.column;
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
        again[i] = point.value * value[i];
        gate[i] = gradient[i] * value[i] * point.slope;
        value[i] = gradient[i] * point.value;
    }
    store(dg + wide, pack(gate));
    store(dg + wide + columns, pack(value));
    store(a + narrow, pack(again));
}

__global__ void __launch_bounds__(kThreads)
    gelu_backward_kernel(const __nv_bfloat16* g, const __nv_bfloat16* da, __nv_bfloat16* dg, __nv_bfloat16* a,
                         std::int64_t columns) {
    const Place at = place();
    if (at.column >= columns) return;
    const std::int64_t offset = at.row * columns + at.column;
    const Packed packed_x = load(g + offset);
    const Packed packed_da = load(da + offset);
    float x[8];
    float gradient[8];
    unpack(packed_x, x);
    unpack(packed_da, gradient);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const Point point = gelu(x[i]);
        x[i] = point.value;
        gradient[i] *= point.slope;
    }
    store(dg + offset, pack(gradient));
    store(a + offset, pack(x));
}

dim3 grid_of(Extent extent) { return {static_cast<unsigned>(extent.rows), blocks_for(extent.columns, kSlice), 1}; }

}  // namespace

void activation_forward(const void* g, void* a, Extent extent, bool gated, cudaStream_t stream) {
    const auto* from = static_cast<const __nv_bfloat16*>(g);
    auto* to = static_cast<__nv_bfloat16*>(a);
    if (gated) {
        swiglu_forward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(from, to, extent.columns);
    } else {
        gelu_forward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(from, to, extent.columns);
    }
}

void activation_backward(const void* g, const void* da, void* dg, void* a, Extent extent, bool gated,
                         cudaStream_t stream) {
    const auto* from = static_cast<const __nv_bfloat16*>(g);
    const auto* gradient = static_cast<const __nv_bfloat16*>(da);
    auto* to = static_cast<__nv_bfloat16*>(dg);
    auto* again = static_cast<__nv_bfloat16*>(a);
    if (gated) {
        swiglu_backward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(from, gradient, to, again, extent.columns);
    } else {
        gelu_backward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(from, gradient, to, again, extent.columns);
    }
}

void load_activation_kernels() {
    load_each(swiglu_forward_kernel, gelu_forward_kernel, swiglu_backward_kernel, gelu_backward_kernel);
}

}  // namespace stowage::executor::kernels
