// Bound by memory: eight elements a thread and pass. Sums of squares go over fixed parts, then over the parts in order.

#include "executor/workload/kernels/optimizer.hpp"

#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kNormThreads = 1024;
constexpr int kUnrolled = 2;  // vectors that a thread reads before it adds
constexpr std::int64_t kMostBlocks = 2112;

__device__ __forceinline__ void load_values(const float* from, float (&to)[8]) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    to[0] = low.x;
    to[1] = low.y;
    to[2] = low.z;
    to[3] = low.w;
    to[4] = high.x;
    to[5] = high.y;
    to[6] = high.z;
    to[7] = high.w;
}
__device__ __forceinline__ void load_values(const __nv_bfloat16* from, float (&to)[8]) { unpack(load(from), to); }

__device__ __forceinline__ void store_values(float* to, const float (&from)[8]) {
    reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}

/// Block p: vectors p kNormThreads + thread, each gridDim.x kNormThreads on.
template <class Gradient>
__global__ void __launch_bounds__(kNormThreads)
    square_sum_kernel(const Gradient* __restrict__ gradient, float* __restrict__ partials, std::int64_t vectors) {
    __shared__ float shared[kWarp];
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kNormThreads;
    float sum = 0.0F;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kNormThreads + threadIdx.x; first < vectors;
         first += stride * kUnrolled) {
        float values[kUnrolled][8] = {};
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            if (first + u * stride < vectors) load_values(gradient + (first + u * stride) * kVector, values[u]);
        }
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
#pragma unroll
            for (int i = 0; i < 8; ++i) sum += values[u][i] * values[u][i];
        }
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/// One block.
__global__ void __launch_bounds__(kNormThreads)
    norm_kernel(const float* __restrict__ partials, float* __restrict__ norm, std::int64_t count, float most) {
    __shared__ float shared[kWarp];
    float sum = 0.0F;
    for (std::int64_t p = threadIdx.x; p < count; p += kNormThreads) sum += partials[p];
    const float length = sqrtf(block_sum(sum, shared));
    if (threadIdx.x != 0) return;
    norm[0] = length;
    norm[1] = fminf(1.0F, most / (length + 1e-6F));
}

/// What the sums of geometric weights are short of 1, for each moment.
__device__ __forceinline__ float2 corrections(std::uint64_t step, const AdamRates& rates) {
    const auto steps = static_cast<double>(step + 1);
    return make_float2(static_cast<float>(1.0 - pow(static_cast<double>(rates.beta1), steps)),
                       static_cast<float>(1.0 - pow(static_cast<double>(rates.beta2), steps)));
}

template <class Gradient>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(const Gradient* __restrict__ gradient, const float* __restrict__ norm, float* __restrict__ master,
                float* __restrict__ first, float* __restrict__ second, __nv_bfloat16* __restrict__ parameters,
                std::int64_t vectors, const std::uint64_t* __restrict__ step, AdamRates rates) {
    __shared__ float2 shared;
    if (threadIdx.x == 0) shared = corrections(*step, rates);
    __syncthreads();
    const float2 correction = shared;
    const float scale = norm[1];
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors; v += stride) {
        const std::int64_t at = v * kVector;
        float g[8];
        float p[8];
        float m[8];
        float s[8];
        load_values(gradient + at, g);
        load_values(master + at, p);
        load_values(first + at, m);
        load_values(second + at, s);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const float clipped = g[i] * scale;
            m[i] = rates.beta1 * m[i] + (1.0F - rates.beta1) * clipped;
            s[i] = rates.beta2 * s[i] + (1.0F - rates.beta2) * clipped * clipped;
            const float length = sqrtf(s[i] / correction.y) + rates.epsilon;
            p[i] -= rates.rate * (m[i] / correction.x / length + rates.decay * p[i]);
        }
        store_values(master + at, p);
        store_values(first + at, m);
        store_values(second + at, s);
        store(parameters + at, pack(p));
    }
}

__global__ void __launch_bounds__(kThreads)
    widen_kernel(const __nv_bfloat16* __restrict__ from, float* __restrict__ to, std::int64_t vectors) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors; v += stride) {
        float values[8];
        load_values(from + v * kVector, values);
        store_values(to + v * kVector, values);
    }
}

unsigned blocks_of(std::int64_t vectors) {
    const std::int64_t wanted = (vectors + kThreads - 1) / kThreads;
    return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
}

template <class Gradient>
void update(const AdamBuffers& buffers, std::int64_t vectors, const std::uint64_t* step, const AdamRates& rates,
            cudaStream_t stream) {
    adam_kernel<<<blocks_of(vectors), kThreads, 0, stream>>>(
        static_cast<const Gradient*>(buffers.gradient), buffers.norm, buffers.master, buffers.first, buffers.second,
        static_cast<__nv_bfloat16*>(buffers.parameters), vectors, step, rates);
}

}  // namespace

void gradient_norm(const void* gradient, bool fp32, float* norm, float* partials, std::int64_t count,
                   std::int64_t blocks, float most, cudaStream_t stream) {
    const std::int64_t vectors = count / kVector;
    const auto grid = static_cast<unsigned>(blocks);
    if (fp32) {
        square_sum_kernel<<<grid, kNormThreads, 0, stream>>>(static_cast<const float*>(gradient), partials, vectors);
    } else {
        square_sum_kernel<<<grid, kNormThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(gradient), partials,
                                                             vectors);
    }
    norm_kernel<<<1, kNormThreads, 0, stream>>>(partials, norm, blocks, most);
}

void adam_update(const AdamBuffers& buffers, bool fp32, std::int64_t count, const std::uint64_t* step, AdamRates rates,
                 cudaStream_t stream) {
    const std::int64_t vectors = count / kVector;
    if (fp32) {
        update<float>(buffers, vectors, step, rates, stream);
    } else {
        update<__nv_bfloat16>(buffers, vectors, step, rates, stream);
    }
}

void widen(const void* from, float* to, std::int64_t count, cudaStream_t stream) {
    const std::int64_t vectors = count / kVector;
    widen_kernel<<<blocks_of(vectors), kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(from), to, vectors);
}

void load_optimizer_kernels() {
    load_each(square_sum_kernel<float>, square_sum_kernel<__nv_bfloat16>, norm_kernel, adam_kernel<float>,
              adam_kernel<__nv_bfloat16>, widen_kernel);
}

}  // namespace stowage::executor::kernels
