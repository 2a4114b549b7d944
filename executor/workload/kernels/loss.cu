// Losses. Sums over a whole microbatch go over fixed parts and then, by one block, over the parts in order.

#include <cfloat>

#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kRowThreads = 512;
constexpr int kRowVectors = 2;  // read by a thread before it reduces
constexpr int kThreads = 256;
constexpr int kSlice = kThreads * kVector;
constexpr int kFinalThreads = 1024;

/// A running log-sum-exp: `sum` is of exp(x - most).
struct Running {
    float most;
    float sum;
};

/// The same of both parts. `most` starts at the lowest finite number, so that no difference is of infinities.
__device__ __forceinline__ Running join(Running a, Running b) {
    const float most = fmaxf(a.most, b.most);
    return {most, a.sum * __expf(a.most - most) + b.sum * __expf(b.most - most)};
}

__device__ __forceinline__ Running add(Running running, const float (&x)[8]) {
    float most = running.most;
#pragma unroll
    for (int i = 0; i < 8; ++i) most = fmaxf(most, x[i]);
    float sum = running.sum * __expf(running.most - most);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += __expf(x[i] - most);
    return {most, sum};
}

__device__ __forceinline__ Running warp_join(Running running) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        running = join(running, Running{__shfl_xor_sync(kAllLanes, running.most, distance),
                                        __shfl_xor_sync(kAllLanes, running.sum, distance)});
    }
    return running;
}

__global__ void __launch_bounds__(kRowThreads)
    log_sum_exp_kernel(const __nv_bfloat16* __restrict__ logits, float* __restrict__ log_sum_exp,
                       std::int64_t columns) {
    __shared__ Running shared[kRowThreads / kWarp];
    const __nv_bfloat16* row = logits + static_cast<std::int64_t>(blockIdx.x) * columns;
    Running running{-FLT_MAX, 0.0F};
    constexpr std::int64_t kStep = kRowThreads * kVector;
    for (std::int64_t base = threadIdx.x * kVector; base < columns; base += kStep * kRowVectors) {
        Packed values[kRowVectors];
#pragma unroll
        for (int v = 0; v < kRowVectors; ++v) {
            if (base + v * kStep < columns) values[v] = load(row + base + v * kStep);
        }
#pragma unroll
        for (int v = 0; v < kRowVectors; ++v) {
            if (base + v * kStep >= columns) continue;
            float x[8];
            unpack(values[v], x);
            running = add(running, x);
        }
    }
    running = warp_join(running);
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) shared[threadIdx.x / kWarp] = running;
    __syncthreads();
    if (threadIdx.x >= kWarp) return;
    running = lane < kRowThreads / kWarp ? shared[lane] : Running{-FLT_MAX, 0.0F};
    running = warp_join(running);
    if (lane == 0) log_sum_exp[blockIdx.x] = running.most + logf(running.sum);
}

__device__ __forceinline__ void finish(float sum, float scale, float* loss) {
    __shared__ float2 shared[kWarp];
    const float2 total = block_sum(make_float2(sum, 0.0F), shared);
    if (threadIdx.x == 0) *loss = total.x * scale;
}

/// One block. A label that is no column adds the log-sum-exp alone.
__global__ void __launch_bounds__(kFinalThreads)
    cross_entropy_loss_kernel(const __nv_bfloat16* __restrict__ logits, const std::int32_t* __restrict__ labels,
                              const float* __restrict__ log_sum_exp, float* __restrict__ loss, std::int64_t rows,
                              std::int64_t columns, LossScales scales) {
    __shared__ float2 shared[kWarp];
    float2 sums = make_float2(0.0F, 0.0F);
#pragma unroll 4
    for (std::int64_t row = threadIdx.x; row < rows; row += kFinalThreads) {
        const std::int64_t label = labels[row];
        const bool known = label >= 0 && label < columns;
        const float own = log_sum_exp[row] - (known ? __bfloat162float(logits[row * columns + label]) : 0.0F);
        const bool first = row < scales.rows;
        sums.x += first ? own : 0.0F;
        sums.y += first ? 0.0F : own;
    }
    sums = block_sum(sums, shared);
    if (threadIdx.x == 0) *loss = sums.x * scales.first + sums.y * scales.later;
}

__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(__nv_bfloat16* __restrict__ logits, const std::int32_t* __restrict__ labels,
                                  const float* __restrict__ log_sum_exp, std::int64_t columns, LossScales scales) {
    const std::int64_t row = blockIdx.x;
    const float scale = row < scales.rows ? scales.first : scales.later;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kSlice + threadIdx.x * kVector;
    if (column >= columns) return;
    __nv_bfloat16* at = logits + row * columns + column;
    const Packed packed = load(at);
    const std::int64_t label = labels[row];
    const float shift = log_sum_exp[row];
    float x[8];
    unpack(packed, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = (__expf(x[i] - shift) - (column + i == label ? 1.0F : 0.0F)) * scale;
    store(at, pack(x));
}

/// Block p: rows p, p + gridDim.x, ...
__global__ void __launch_bounds__(kThreads)
    square_sums_kernel(const __nv_bfloat16* __restrict__ y, float* __restrict__ partials, std::int64_t rows,
                       std::int64_t columns) {
    float sum = 0.0F;
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
#pragma unroll 2
        for (std::int64_t column = threadIdx.x * kVector; column < columns; column += kSlice) {
            float x[8];
            unpack(load(y + row * columns + column), x);
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += x[i] * x[i];
        }
    }
    finish(sum, 1.0F, partials + blockIdx.x);
}

__global__ void __launch_bounds__(kFinalThreads)
    add_squares_kernel(const float* __restrict__ partials, float* __restrict__ loss, std::int64_t count, float scale) {
    float sum = 0.0F;
    for (std::int64_t p = threadIdx.x; p < count; p += kFinalThreads) sum += partials[p];
    finish(sum, scale, loss);
}

__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __nv_bfloat16* from, __nv_bfloat16* to, std::int64_t count, float scale) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kSlice + threadIdx.x * kVector;
    if (first >= count) return;
    float x[8];
    unpack(load(from + first), x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= scale;
    store(to + first, pack(x));
}

}  // namespace

void cross_entropy_forward(const void* logits, const std::int32_t* labels, float* log_sum_exp, float* loss,
                           Extent extent, LossScales scales, cudaStream_t stream) {
    const auto* from = static_cast<const __nv_bfloat16*>(logits);
    log_sum_exp_kernel<<<static_cast<unsigned>(extent.rows), kRowThreads, 0, stream>>>(from, log_sum_exp,
                                                                                       extent.columns);
    cross_entropy_loss_kernel<<<1, kFinalThreads, 0, stream>>>(from, labels, log_sum_exp, loss, extent.rows,
                                                               extent.columns, scales);
}

void cross_entropy_backward(void* logits, const std::int32_t* labels, const float* log_sum_exp, Extent extent,
                            LossScales scales, cudaStream_t stream) {
    const dim3 grid(static_cast<unsigned>(extent.rows), blocks_for(extent.columns, kSlice), 1);
    cross_entropy_backward_kernel<<<grid, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(logits), labels,
                                                                 log_sum_exp, extent.columns, scales);
}

void mean_square_forward(const void* y, float* loss, float* partials, Extent extent, std::int64_t count,
                         cudaStream_t stream) {
    square_sums_kernel<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(y),
                                                                              partials, extent.rows, extent.columns);
    const double elements = static_cast<double>(extent.rows) * static_cast<double>(extent.columns);
    add_squares_kernel<<<1, kFinalThreads, 0, stream>>>(partials, loss, count, static_cast<float>(1.0 / elements));
}

void mean_square_backward(const void* y, void* dy, std::int64_t count, float scale, cudaStream_t stream) {
    scale_kernel<<<blocks_for(count, kSlice), kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(y),
                                                                     static_cast<__nv_bfloat16*>(dy), count, scale);
}

void load_loss_kernels() {
    load_each(log_sum_exp_kernel, cross_entropy_loss_kernel, cross_entropy_backward_kernel, square_sums_kernel,
              add_squares_kernel, scale_kernel);
}

}  // namespace stowage::executor::kernels
