#include <cuda_bf16.h>

#include "executor/engine/initialise.hpp"
#include "executor/workload/random.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 2112;

__global__ void uniform_kernel(__nv_bfloat16* values, std::int64_t count, std::uint64_t key, float scale) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count; i += stride)
        values[i] = __float2bfloat16_rn(random_hidden(key, static_cast<std::uint64_t>(i)) * scale);
}

__global__ void constant_kernel(__nv_bfloat16* values, std::int64_t count, float value) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count; i += stride)
        values[i] = __float2bfloat16_rn(value);
}

unsigned blocks_of(std::int64_t count) {
    const std::int64_t wanted = (count + kThreads - 1) / kThreads;
    return static_cast<unsigned>(wanted < kBlocks ? wanted : kBlocks);
}

}  // namespace

void fill_uniform(void* values, std::int64_t count, std::uint64_t seed, std::uint64_t stream, float limit,
                  cudaStream_t on) {
    if (count == 0) return;
    constexpr float kLargest = 1.7320508F;  // of random_hidden
    uniform_kernel<<<blocks_of(count), kThreads, 0, on>>>(static_cast<__nv_bfloat16*>(values), count,
                                                          stream_key(seed, stream, 0), limit / kLargest);
}

void fill_constant(void* values, std::int64_t count, float value, cudaStream_t on) {
    if (count == 0) return;
    constant_kernel<<<blocks_of(count), kThreads, 0, on>>>(static_cast<__nv_bfloat16*>(values), count, value);
}

}  // namespace stowage::executor::kernels
