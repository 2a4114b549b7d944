#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "executor/workload/random.hpp"
#include "profiler/calibrate/probe_kernels.hpp"

namespace stowage::calibrate {
namespace {

constexpr int kThreads = 256;
constexpr int kEmptyThreads = 128;
constexpr int kVectors = 4;  // loads in flight of a thread
constexpr std::uint64_t kLongestHold = 2'000'000'000;

__global__ void __launch_bounds__(kEmptyThreads) empty() {}

/// A block copies one run of consecutive vectors, so that each of a thread's loads is of a different line.
__global__ void __launch_bounds__(kThreads)
    copy_vectors(const uint4* __restrict__ source, uint4* __restrict__ destination, std::int64_t count) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads * kVectors + threadIdx.x;
    uint4 values[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        if (first + i * kThreads < count) values[i] = source[first + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
        if (first + i * kThreads < count) destination[first + i * kThreads] = values[i];
    }
}

__global__ void __launch_bounds__(kThreads)
    copy_strided(const unsigned short* __restrict__ source, unsigned short* __restrict__ destination,
                 std::int64_t elements) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i < elements) destination[i] = source[i / kRunLength * kRunDistance + i % kRunLength];
}

__global__ void __launch_bounds__(kThreads) fill(__nv_fp8_e4m3* destination, std::int64_t count) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
        const std::uint64_t word = executor::hash_of_word(0, static_cast<std::uint64_t>(i));
        const float part = static_cast<float>(word >> 40) / static_cast<float>(1 << 24);
        destination[i] = __nv_fp8_e4m3(3.5F * part - 1.75F);
    }
}

__device__ __forceinline__ std::uint64_t nanoseconds_now() {
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

__global__ void wait_for(const volatile int* flag) {
    const std::uint64_t start = nanoseconds_now();
    while (*flag == 0 && nanoseconds_now() - start < kLongestHold) __nanosleep(1000);
}

unsigned blocks_of(std::int64_t items, std::int64_t in_block) {
    return static_cast<unsigned>((items + in_block - 1) / in_block);
}

template <class Kernel>
void load(Kernel kernel) {
    cudaFuncAttributes attributes{};
    static_cast<void>(cudaFuncGetAttributes(&attributes, kernel));  // the caller looks at the last error
}

}  // namespace

void empty_kernel(int blocks, cudaStream_t stream) {
    empty<<<static_cast<unsigned>(blocks), kEmptyThreads, 0, stream>>>();
}

void vector_copy(const void* source, void* destination, std::int64_t bytes, cudaStream_t stream) {
    const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(uint4));
    copy_vectors<<<blocks_of(count, kThreads * kVectors), kThreads, 0, stream>>>(
        static_cast<const uint4*>(source), static_cast<uint4*>(destination), count);
}

void strided_copy(const void* source, void* destination, std::int64_t elements, cudaStream_t stream) {
    copy_strided<<<blocks_of(elements, kThreads), kThreads, 0, stream>>>(
        static_cast<const unsigned short*>(source), static_cast<unsigned short*>(destination), elements);
}

void fill_fp8(void* destination, std::int64_t count, cudaStream_t stream) {
    fill<<<std::min(blocks_of(count, kThreads), 2112U), kThreads, 0, stream>>>(static_cast<__nv_fp8_e4m3*>(destination),
                                                                               count);
}

void hold(const int* flag, cudaStream_t stream) { wait_for<<<1, 1, 0, stream>>>(flag); }

void load_probe_kernels() {
    load(empty);
    load(copy_vectors);
    load(copy_strided);
    load(fill);
    load(wait_for);
}

}  // namespace stowage::calibrate
