#include "benchmarks/profiler/cupti/stream_kernel.hpp"

namespace stowage::benchmarks {
namespace {

__global__ void increment(float4* data, std::size_t count) {
    const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    if (i >= count) return;
    float4 value = data[i];
    value.x += 1;
    value.y += 1;
    value.z += 1;
    value.w += 1;
    data[i] = value;
}

}  // namespace

cudaError_t launch_increment(float* data, std::size_t count, cudaStream_t stream) {
    const std::size_t vectors = count / 4;
    increment<<<static_cast<unsigned>((vectors + 255) / 256), 256, 0, stream>>>(reinterpret_cast<float4*>(data),
                                                                                vectors);
    return cudaGetLastError();
}

}  // namespace stowage::benchmarks
