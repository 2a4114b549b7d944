// Copies of rows that stand for what other ranks would send, and the two simple kernels of tensor parallelism.

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 4;  // of a block, so that a thread has as many reads under way

struct ExchangeArguments {
    const __nv_bfloat16* x;
    const float* weights;
    __nv_bfloat16* y;
    float* y_weights;
    std::int64_t x_rows;
    std::int64_t y_rows;
    std::int64_t columns;
    std::int64_t ranks;
    std::int64_t experts;
    bool to_experts;
};

/// Which row of x a row of y is; -1 if its block is empty there. Block b begins at row b * rows / blocks, so that row r
/// is in the last block that begins at or before it.
__device__ __forceinline__ std::int64_t source_of(const ExchangeArguments& with, std::int64_t row) {
    const std::int64_t blocks = with.ranks * with.experts;
    const std::int64_t block = ((row + 1) * blocks - 1) / with.y_rows;
    const std::int64_t place = row - block * with.y_rows / blocks;
    const std::int64_t width = with.to_experts ? with.ranks : with.experts;  // of y's order
    const std::int64_t height = with.to_experts ? with.experts : with.ranks;
    const std::int64_t there = block % width * height + block / width;
    const std::int64_t begin = there * with.x_rows / blocks;
    const std::int64_t length = (there + 1) * with.x_rows / blocks - begin;
    return length > 0 ? begin + place % length : -1;
}

/// The first threads find the sources of the block's rows.
__global__ void __launch_bounds__(kThreads) exchange_kernel(ExchangeArguments with) {
    __shared__ std::int64_t sources[kRows];
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
    if (threadIdx.x < kRows) {
        const std::int64_t row = first + threadIdx.x;
        const std::int64_t source = row < with.y_rows ? source_of(with, row) : -1;
        sources[threadIdx.x] = source;
        if (with.y_weights != nullptr && row < with.y_rows) {
            with.y_weights[row] = source >= 0 ? with.weights[source] : 0.0F;
        }
    }
    __syncthreads();
    for (std::int64_t column = threadIdx.x * kVector; column < with.columns; column += blockDim.x * kVector) {
        Packed values[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            values[r] = Packed{};
            if (sources[r] >= 0) values[r] = load(with.x + sources[r] * with.columns + column);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            if (first + r < with.y_rows) store(with.y + (first + r) * with.columns + column, values[r]);
        }
    }
}

constexpr int kVectors = 4;  // of a thread

__global__ void __launch_bounds__(kThreads)
    repeat_kernel(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, std::int64_t count,
                  std::int64_t times) {
    const std::int64_t base = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
    if (base >= count) return;
    const Packed value = load(x + base);
    for (std::int64_t i = 0; i < times; ++i) store(y + i * count + base, value);
}

/// A thread reads an element of both before it writes it: x and y may be the same.
__global__ void __launch_bounds__(kThreads) add_kernel(__nv_bfloat16* x, const __nv_bfloat16* y, std::int64_t count) {
    const std::int64_t base = (static_cast<std::int64_t>(blockIdx.x) * kVectors * kThreads + threadIdx.x) * kVector;
    Packed packed_x[kVectors];
    Packed packed_y[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = base + v * kThreads * kVector;
        if (at >= count) break;
        packed_x[v] = load(x + at);
        packed_y[v] = load(y + at);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t at = base + v * kThreads * kVector;
        if (at >= count) break;
        float sums[8];
        float terms[8];
        unpack(packed_x[v], sums);
        unpack(packed_y[v], terms);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i] += terms[i];
        store(x + at, pack(sums));
    }
}

}  // namespace

void exchange_rows(const Exchange& buffers, Extent received, cudaStream_t stream) {
    const ExchangeArguments arguments{static_cast<const __nv_bfloat16*>(buffers.x),
                                      buffers.weights,
                                      static_cast<__nv_bfloat16*>(buffers.y),
                                      buffers.y_weights,
                                      buffers.x_rows,
                                      received.rows,
                                      received.columns,
                                      buffers.ranks,
                                      buffers.experts,
                                      buffers.to_experts};
    exchange_kernel<<<blocks_for(received.rows, kRows), kThreads, 0, stream>>>(arguments);
}

void repeat_rows(const void* x, void* y, std::int64_t count, std::int64_t times, cudaStream_t stream) {
    repeat_kernel<<<blocks_for(count, kThreads * kVector), kThreads, 0, stream>>>(
        static_cast<const __nv_bfloat16*>(x), static_cast<__nv_bfloat16*>(y), count, times);
}

void add(void* x, const void* y, std::int64_t count, cudaStream_t stream) {
    add_kernel<<<blocks_for(count, kVectors * kThreads * kVector), kThreads, 0, stream>>>(
        static_cast<__nv_bfloat16*>(x), static_cast<const __nv_bfloat16*>(y), count);
}

void load_exchange_kernels() { load_each(exchange_kernel, repeat_kernel, add_kernel); }

}  // namespace stowage::executor::kernels
