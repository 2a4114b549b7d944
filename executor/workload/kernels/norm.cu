// RMSNorm and LayerNorm. A row is kept in registers by one block: K accesses of 16 bytes a thread. The backward gives
// each of `partials` blocks the rows p, p + partials, ... so that sums over rows for the gradients of weight and bias
// stay in registers, and reads its next row before it is done with the present one.
//
// With x^ = (x - mean) rstd (mean = 0 for RMSNorm), g = dy * weight, and means over the columns:
//   y = x^ * weight + bias      dx = rstd (g - mean(g) - x^ mean(g x^)) + residual      (RMSNorm has no mean(g))
//   d weight += sum over rows of dy x^                   d bias += sum over rows of dy

#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

__device__ __forceinline__ const __nv_bfloat16* bf16(const void* from) {
    return static_cast<const __nv_bfloat16*>(from);
}

constexpr int kResident = 1024;  // threads of the forward on a multiprocessor, each with 64 registers

/// Accesses of `Threads` threads that cover a row, nothing behind its end. They are all under way before one is used.
template <int Threads, int K>
__device__ __forceinline__ void load_columns(const __nv_bfloat16* from, std::int64_t columns, Packed (&to)[K]) {
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        to[v] = Packed{};
        if (column < columns) to[v] = load(from + column);
    }
}

/// Of (x - mean)^2 or, without squares, of x, over this thread's columns.
template <int Threads, int K, bool Squares>
__device__ __forceinline__ float sum_columns(const Packed (&packed)[K], float mean, std::int64_t columns) {
    float sum = 0.0F;
#pragma unroll
    for (int v = 0; v < K; ++v) {
        if ((v * Threads + threadIdx.x) * kVector >= columns) continue;
        float x[8];
        unpack(packed[v], x);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += Squares ? (x[i] - mean) * (x[i] - mean) : x[i];
    }
    return sum;
}

template <int Threads, int K, bool LayerNorm>
__global__ void __launch_bounds__(Threads, kResident / Threads)
    forward_kernel(NormForward buffers, std::int64_t columns) {
    __shared__ float shared[2][kWarp];
    const std::int64_t row = blockIdx.x;
    Packed x[K];
    load_columns<Threads, K>(bf16(buffers.x) + row * buffers.stride, columns, x);
    const float inverse = 1.0F / static_cast<float>(columns);
    float mean = 0.0F;
    if constexpr (LayerNorm) mean = block_sum(sum_columns<Threads, K, false>(x, 0.0F, columns), shared[0]) * inverse;
    const float variance = block_sum(sum_columns<Threads, K, true>(x, mean, columns), shared[1]) * inverse;
    const float rstd = rsqrtf(variance + buffers.epsilon);
    if (threadIdx.x == 0) {
        buffers.rstd[row] = rstd;
        if constexpr (LayerNorm) buffers.mean[row] = mean;
    }
    Packed weight[K];
    Packed bias[K] = {};
    load_columns<Threads, K>(bf16(buffers.weight), columns, weight);
    if constexpr (LayerNorm) load_columns<Threads, K>(bf16(buffers.bias), columns, bias);
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        if (column >= columns) continue;
        float y[8];
        float w[8];
        float b[8];
        unpack(x[v], y);
        unpack(weight[v], w);
        unpack(bias[v], b);
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = (y[i] - mean) * rstd * w[i] + b[i];
        store(static_cast<__nv_bfloat16*>(buffers.y) + row * columns + column, pack(y));
    }
}

/// One row of the backward as it was read.
template <int K>
struct Row {
    Packed x[K];
    Packed dy[K];
    Packed residual[K];
    float rstd;
    float mean;
};

template <int Threads, int K, bool LayerNorm>
__device__ __forceinline__ void read_row(const NormBackward& buffers, std::int64_t row, std::int64_t columns,
                                         Row<K>& out) {
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        out.x[v] = out.dy[v] = out.residual[v] = Packed{};
        if (column >= columns) continue;
        out.x[v] = load(bf16(buffers.x) + row * buffers.stride + column);
        out.dy[v] = load(bf16(buffers.dy) + row * columns + column);
        if (buffers.residual != nullptr) out.residual[v] = load(bf16(buffers.residual) + row * columns + column);
    }
    out.rstd = buffers.rstd[row];
    out.mean = LayerNorm ? buffers.mean[row] : 0.0F;
}

/// x^ and g of eight columns; adds to the gradients and to the row's sums (mean(g), mean(g x^)).
template <int Threads, int K, bool LayerNorm>
__device__ __forceinline__ float2 accumulate(const Row<K>& row, const Packed (&weight)[K], float (&d_weight)[K][8],
                                             float (&d_bias)[K][8]) {
    float2 sums = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int v = 0; v < K; ++v) {
        float x[8];
        float dy[8];
        float w[8];
        unpack(row.x[v], x);
        unpack(row.dy[v], dy);
        unpack(weight[v], w);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float normal = (x[i] - row.mean) * row.rstd;
            const float g = dy[i] * w[i];
            if constexpr (LayerNorm) sums.x += g;
            sums.y += g * normal;
            d_weight[v][i] += dy[i] * normal;
            if constexpr (LayerNorm) d_bias[v][i] += dy[i];
        }
    }
    return sums;
}

template <int Threads, int K>
__device__ __forceinline__ void write_dx(const NormBackward& buffers, const Row<K>& row, const Packed (&weight)[K],
                                         float2 means, std::int64_t place, std::int64_t columns) {
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        if (column >= columns) continue;
        float x[8];
        float dy[8];
        float w[8];
        float residual[8];
        unpack(row.x[v], x);
        unpack(row.dy[v], dy);
        unpack(weight[v], w);
        unpack(row.residual[v], residual);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float normal = (x[i] - row.mean) * row.rstd;
            x[i] = row.rstd * (dy[i] * w[i] - means.x - normal * means.y) + residual[i];
        }
        store(static_cast<__nv_bfloat16*>(buffers.dx) + place * buffers.stride + column, pack(x));
    }
}

__device__ __forceinline__ void write_sums(float* to, const float (&sums)[8]) {
    reinterpret_cast<float4*>(to)[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
}

template <int Threads, int K, bool LayerNorm>
__global__ void __launch_bounds__(Threads)
    backward_kernel(NormBackward buffers, std::int64_t rows, std::int64_t columns) {
    __shared__ float2 shared[2][kWarp];  // in turn: one barrier a row
    const float inverse = 1.0F / static_cast<float>(columns);
    Packed weight[K] = {};
    float d_weight[K][8] = {};
    float d_bias[K][8] = {};
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        if (column < columns) weight[v] = load(bf16(buffers.weight) + column);
    }
    Row<K> next;
    int turn = 0;
    read_row<Threads, K, LayerNorm>(buffers, blockIdx.x, columns, next);
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const Row<K> present = next;
        if (row + gridDim.x < rows) read_row<Threads, K, LayerNorm>(buffers, row + gridDim.x, columns, next);
        float2 means = accumulate<Threads, K, LayerNorm>(present, weight, d_weight, d_bias);
        means = block_sum(means, shared[turn]);
        turn ^= 1;
        means.x *= inverse;
        means.y *= inverse;
        write_dx<Threads, K>(buffers, present, weight, means, row, columns);
    }
#pragma unroll
    for (int v = 0; v < K; ++v) {
        const std::int64_t column = (v * Threads + threadIdx.x) * kVector;
        if (column >= columns) continue;
        float* to = buffers.partials + blockIdx.x * columns + column;
        write_sums(to, d_weight[v]);
        if constexpr (LayerNorm) write_sums(to + gridDim.x * columns, d_bias[v]);
    }
}

template <int Threads, int K>
void launch_forward(const NormForward& buffers, Extent extent, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(extent.rows);
    if (buffers.layer_norm) {
        forward_kernel<Threads, K, true><<<blocks, Threads, 0, stream>>>(buffers, extent.columns);
    } else {
        forward_kernel<Threads, K, false><<<blocks, Threads, 0, stream>>>(buffers, extent.columns);
    }
}

template <int Threads, int K>
void launch_backward(const NormBackward& buffers, Extent extent, std::int64_t partials, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(partials);
    if (buffers.layer_norm) {
        backward_kernel<Threads, K, true><<<blocks, Threads, 0, stream>>>(buffers, extent.rows, extent.columns);
    } else {
        backward_kernel<Threads, K, false><<<blocks, Threads, 0, stream>>>(buffers, extent.rows, extent.columns);
    }
}

}  // namespace

/// Four accesses a thread where rows are long enough: fewer threads share the fixed cost of a row's sum, and eight
/// blocks of 128 on a multiprocessor have 64 KiB under way.
void norm_forward(const NormForward& buffers, Extent extent, cudaStream_t stream) {
    if (extent.columns <= 128 * kVector) return launch_forward<128, 1>(buffers, extent, stream);
    if (extent.columns <= 256 * kVector) return launch_forward<128, 2>(buffers, extent, stream);
    if (extent.columns <= 512 * kVector) return launch_forward<128, 4>(buffers, extent, stream);
    if (extent.columns <= 1024 * kVector) return launch_forward<256, 4>(buffers, extent, stream);
    launch_forward<512, 4>(buffers, extent, stream);
}

void norm_backward(const NormBackward& buffers, Extent extent, std::int64_t partials, cudaStream_t stream) {
    if (extent.columns <= 128 * kVector) {
        launch_backward<128, 1>(buffers, extent, partials, stream);
    } else if (extent.columns <= 256 * kVector) {
        launch_backward<256, 1>(buffers, extent, partials, stream);
    } else if (extent.columns <= 512 * kVector) {
        launch_backward<512, 1>(buffers, extent, partials, stream);
    } else if (extent.columns <= 1024 * kVector) {
        launch_backward<512, 2>(buffers, extent, partials, stream);
    } else {
        launch_backward<1024, 2>(buffers, extent, partials, stream);
    }
    add_partials(buffers.partials, partials, extent.columns, buffers.weight_gradient, buffers.fp32, stream);
    if (!buffers.layer_norm) return;
    add_partials(buffers.partials + partials * extent.columns, partials, extent.columns, buffers.bias_gradient,
                 buffers.fp32, stream);
}

namespace {

template <int Threads, int K>
void load_forward() {
    load_each(forward_kernel<Threads, K, false>, forward_kernel<Threads, K, true>);
}

template <int Threads, int K>
void load_backward() {
    load_each(backward_kernel<Threads, K, false>, backward_kernel<Threads, K, true>);
}

}  // namespace

void load_norm_kernels() {
    load_forward<128, 1>();
    load_forward<128, 2>();
    load_forward<128, 4>();
    load_forward<256, 4>();
    load_forward<512, 4>();
    load_backward<128, 1>();
    load_backward<256, 1>();
    load_backward<512, 1>();
    load_backward<512, 2>();
    load_backward<1024, 2>();
}

}  // namespace stowage::executor::kernels
