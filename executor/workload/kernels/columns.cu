// Two matrices side by side, and apart again.

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread, so that it has as many reads under way

/// Where a vector of the wide matrix lies in one of the narrow ones. `vectors`: of a narrow row.
struct Place {
    bool second;
    std::int64_t at;
};
__device__ __forceinline__ Place place_of(std::int64_t vector, std::int64_t vectors) {
    const std::int64_t half = vector / vectors;  // two of each row
    return {(half & 1) != 0, half / 2 * vectors + vector % vectors};
}

/// A vector of the wide matrix a step, neighbours side by side.
template <class Move>
__device__ __forceinline__ void for_each_vector(std::int64_t count, Move move) {
    const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * kVectors * kThreads + threadIdx.x;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t vector = base + v * kThreads;
        if (vector < count) move(vector);
    }
}

__global__ void __launch_bounds__(kThreads)
    join_kernel(const Packed* __restrict__ first, const Packed* __restrict__ second, Packed* __restrict__ both,
                std::int64_t count, std::int64_t vectors) {
    for_each_vector(count, [&](std::int64_t vector) {
        const Place place = place_of(vector, vectors);
        both[vector] = (place.second ? second : first)[place.at];
    });
}

__global__ void __launch_bounds__(kThreads)
    split_kernel(const Packed* __restrict__ both, Packed* __restrict__ first, Packed* __restrict__ second,
                 std::int64_t count, std::int64_t vectors) {
    for_each_vector(count, [&](std::int64_t vector) {
        const Place place = place_of(vector, vectors);
        (place.second ? second : first)[place.at] = both[vector];
    });
}

std::int64_t wide_vectors(Extent extent) { return 2 * extent.rows * extent.columns / kVector; }

}  // namespace

void join_columns(const void* first, const void* second, void* both, Extent extent, cudaStream_t stream) {
    const std::int64_t count = wide_vectors(extent);
    join_kernel<<<blocks_for(count, kVectors * kThreads), kThreads, 0, stream>>>(
        static_cast<const Packed*>(first), static_cast<const Packed*>(second), static_cast<Packed*>(both), count,
        extent.columns / kVector);
}

void split_columns(const void* both, void* first, void* second, Extent extent, cudaStream_t stream) {
    const std::int64_t count = wide_vectors(extent);
    split_kernel<<<blocks_for(count, kVectors * kThreads), kThreads, 0, stream>>>(
        static_cast<const Packed*>(both), static_cast<Packed*>(first), static_cast<Packed*>(second), count,
        extent.columns / kVector);
}

void load_column_kernels() { load_each(join_kernel, split_kernel); }

}  // namespace stowage::executor::kernels
