#include "executor/workload/kernels/debug.hpp"

#include <algorithm>

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/random.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 2112;  // 16 for each of 132 processors
constexpr unsigned long long kNoOffset = ~0ULL;

__device__ __forceinline__ std::uint64_t clock_nanoseconds() {
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

__global__ void spin_kernel(std::uint64_t nanoseconds) {
    const std::uint64_t start = clock_nanoseconds();
    while (clock_nanoseconds() - start < nanoseconds) __nanosleep(200);
}

__device__ std::uint64_t last_word(const unsigned char* bytes, std::int64_t count) {
    std::uint64_t word = 0;
    for (std::int64_t i = 0; i < count; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
    return word;
}

__device__ __forceinline__ unsigned long long warp_total(unsigned long long value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

__global__ void __launch_bounds__(kThreads)
    digest_kernel(const void* __restrict__ buffer, std::int64_t bytes, unsigned long long* __restrict__ digest) {
    const auto* words = static_cast<const std::uint64_t*>(buffer);
    const std::int64_t whole = bytes / 8;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    unsigned long long sum = 0;
#pragma unroll 8
    for (std::int64_t i = first; i < whole; i += step) sum += hash_of_word(words[i], static_cast<std::uint64_t>(i));
    if (first == 0 && bytes % 8 != 0) {
        const auto* rest = static_cast<const unsigned char*>(buffer) + 8 * whole;
        sum += hash_of_word(last_word(rest, bytes % 8), static_cast<std::uint64_t>(whole));
    }
    sum = warp_total(sum);
    if (threadIdx.x % kWarp == 0) atomicAdd(digest, sum);  // of integers: any order gives the same
}

__global__ void __launch_bounds__(kThreads) fill_fence_kernel(unsigned char* fence, std::int64_t bytes) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < bytes; i += step) {
        fence[i] = fence_byte(static_cast<std::uint64_t>(i));
    }
}

__global__ void clear_report_kernel(FenceReport* report) {
    report->broken_bytes = 0;
    report->first_offset = kNoOffset;
}

__global__ void __launch_bounds__(kThreads)
    check_fence_kernel(const unsigned char* fence, std::int64_t bytes, FenceReport* report) {
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < bytes; i += step) {
        if (fence[i] == fence_byte(static_cast<std::uint64_t>(i))) continue;
        atomicAdd(&report->broken_bytes, 1ULL);
        atomicMin(&report->first_offset, static_cast<unsigned long long>(i));
    }
}

unsigned blocks_of(std::int64_t items) {
    return static_cast<unsigned>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks));
}

}  // namespace

void spin(std::uint64_t nanoseconds, cudaStream_t stream) { spin_kernel<<<1, 1, 0, stream>>>(nanoseconds); }

void poison(void* buffer, std::int64_t bytes, cudaStream_t stream) {
    if (bytes <= 0) return;
    cudaMemsetAsync(buffer, 0xff, static_cast<std::size_t>(bytes), stream);  // the caller looks at the last error
}

void digest(const void* buffer, std::int64_t bytes, std::uint64_t* result, cudaStream_t stream) {
    cudaMemsetAsync(result, 0, sizeof(std::uint64_t), stream);
    digest_kernel<<<blocks_of(bytes / 8), kThreads, 0, stream>>>(buffer, bytes,
                                                                 reinterpret_cast<unsigned long long*>(result));
}

void fill_fence(void* fence, std::int64_t bytes, cudaStream_t stream) {
    fill_fence_kernel<<<blocks_of(bytes), kThreads, 0, stream>>>(static_cast<unsigned char*>(fence), bytes);
}

void clear_fence_report(FenceReport* report, cudaStream_t stream) { clear_report_kernel<<<1, 1, 0, stream>>>(report); }

void check_fence(const void* fence, std::int64_t bytes, FenceReport* report, cudaStream_t stream) {
    check_fence_kernel<<<blocks_of(bytes), kThreads, 0, stream>>>(static_cast<const unsigned char*>(fence), bytes,
                                                                  report);
}

void load_debug_kernels() {
    load_each(spin_kernel, digest_kernel, fill_fence_kernel, clear_report_kernel, check_fence_kernel);
}

}  // namespace stowage::executor::kernels
