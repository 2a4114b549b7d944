// Sums over rows: `count` blocks add up rows p, p + count, ... of each column, then one pass adds those partial sums in
// order to the gradient.

#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kUnrolled = 4;  // rows that a thread reads before it adds
constexpr int kSlice = kThreads * kVector;
constexpr int kAddWarps = 16;

__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const __nv_bfloat16* __restrict__ from, float* __restrict__ partials, std::int64_t rows,
                       std::int64_t columns) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kSlice + threadIdx.x * kVector;
    if (column >= columns) return;
    const std::int64_t step = gridDim.x;
    float sums[8] = {};
    for (std::int64_t first = blockIdx.x; first < rows; first += step * kUnrolled) {
        Packed values[kUnrolled];
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            values[u] = Packed{};
            if (first + u * step < rows) values[u] = load(from + (first + u * step) * columns + column);
        }
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            float terms[8];
            unpack(values[u], terms);
#pragma unroll
            for (int i = 0; i < 8; ++i) sums[i] += terms[i];
        }
    }
    auto* to = reinterpret_cast<float4*>(partials + blockIdx.x * columns + column);
    to[0] = make_float4(sums[0], sums[1], sums[2], sums[3]);
    to[1] = make_float4(sums[4], sums[5], sums[6], sums[7]);
}

/// A lane for each column; warp w adds partials w, w + 16, ..., the first warp then adds the warps' sums.
template <class Gradient>
__global__ void __launch_bounds__(kAddWarps* kWarp)
    add_partials_kernel(const float* __restrict__ partials, std::int64_t count, std::int64_t columns,
                        Gradient* __restrict__ gradient) {
    __shared__ float shared[kAddWarps][kWarp];
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
    float sum = 0.0F;
    if (column < columns) {
#pragma unroll 8
        for (std::int64_t p = warp; p < count; p += kAddWarps) sum += partials[p * columns + column];
    }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || column >= columns) return;
    float total = 0.0F;
#pragma unroll
    for (int w = 0; w < kAddWarps; ++w) total += shared[w][lane];
    add_to(gradient + column, total);
}

}  // namespace

void add_partials(const float* partials, std::int64_t count, std::int64_t columns, void* gradient, bool fp32,
                  cudaStream_t stream) {
    const unsigned blocks = blocks_for(columns, kWarp);
    if (fp32) {
        add_partials_kernel<<<blocks, kAddWarps * kWarp, 0, stream>>>(partials, count, columns,
                                                                      static_cast<float*>(gradient));
    } else {
        add_partials_kernel<<<blocks, kAddWarps * kWarp, 0, stream>>>(partials, count, columns,
                                                                      static_cast<__nv_bfloat16*>(gradient));
    }
}

void bias_gradient(const void* dy, void* gradient, bool fp32, float* partials, Extent extent, std::int64_t count,
                   cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(count), blocks_for(extent.columns, kSlice), 1);
    column_sums_kernel<<<grid, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(dy), partials, extent.rows,
                                                      extent.columns);
    add_partials(partials, count, extent.columns, gradient, fp32, stream);
}

void load_sum_kernels() {
    load_each(column_sums_kernel, add_partials_kernel<float>, add_partials_kernel<__nv_bfloat16>);
}

}  // namespace stowage::executor::kernels
