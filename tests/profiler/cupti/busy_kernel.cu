#include "tests/profiler/cupti/busy_kernel.hpp"

namespace stowage::support {
namespace {

__global__ void busy(float* result, unsigned rounds) {
    float value = 1.0F;
    for (unsigned i = 0; i < rounds; ++i) value = value * 0.999F + 0.5F;
    if (threadIdx.x == 0) *result = value;
}

}  // namespace

cudaError_t launch_busy(float* result, unsigned rounds, cudaStream_t stream) {
    busy<<<1, 32, 0, stream>>>(result, rounds);
    return cudaGetLastError();
}

}  // namespace stowage::support
