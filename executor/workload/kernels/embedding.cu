#include "executor/workload/kernels/device.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kVectors = 2;                            // of a thread
constexpr int kSlice = kThreads * kVectors * kVector;  // columns of a block

__global__ void __launch_bounds__(kThreads)
    forward_kernel(const std::int32_t* __restrict__ tokens, const __nv_bfloat16* __restrict__ table,
                   __nv_bfloat16* __restrict__ y, std::int64_t columns, std::int64_t table_rows) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t token = tokens[row];
    const bool ours = token >= 0 && token < table_rows;
    const __nv_bfloat16* from = table + (ours ? token : 0) * columns;
    Packed values[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t column = blockIdx.y * kSlice + (v * kThreads + threadIdx.x) * kVector;
        values[v] = Packed{};
        if (ours && column < columns) values[v] = load(from + column);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t column = blockIdx.y * kSlice + (v * kThreads + threadIdx.x) * kVector;
        if (column < columns) store(y + row * columns + column, values[v]);
    }
}

/// Whether a place before `row` has the same token: then that place's block adds this row too.
__device__ bool has_earlier(const std::int32_t* tokens, std::int64_t row, std::int32_t token) {
    bool found = false;
    for (std::int64_t base = 0; base < row; base += kThreads) {
        const std::int64_t place = base + threadIdx.x;
        found = found || (place < row && tokens[place] == token);
    }
    return __syncthreads_or(found) != 0;
}

/// Lists, in order of place, the threads' places that match; returns how many. All threads of the block take part.
__device__ int list_matches(bool matches, std::int64_t place, std::int64_t* list, int* warp_counts) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const unsigned votes = __ballot_sync(kAllLanes, matches);
    __syncthreads();  // the list of the round before has been read
    if (lane == 0) warp_counts[warp] = __popc(votes);
    __syncthreads();
    int before = 0;
    int total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
        before += w < warp ? warp_counts[w] : 0;
        total += warp_counts[w];
    }
    if (matches) list[before + __popc(votes & ((1U << lane) - 1U))] = place;
    __syncthreads();
    return total;
}

__device__ void add_row(const __nv_bfloat16* dy, std::int64_t columns, float (&sums)[kVectors][8]) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t column = blockIdx.y * kSlice + (v * kThreads + threadIdx.x) * kVector;
        if (column >= columns) continue;
        float values[8];
        unpack(load(dy + column), values);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[v][i] += values[i];
    }
}

/// A block for each place and slice of columns. The first place of a token adds the rows of all places with it, in
/// order, in registers, and then once to the table's gradient; the others find an earlier place and leave. No scratch
/// memory and no atomics; each block reads all tokens, which stay in the caches (16 KiB for 4096 of them).
template <class Gradient>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const std::int32_t* __restrict__ tokens, const __nv_bfloat16* __restrict__ dy,
                    Gradient* __restrict__ gradient, std::int64_t rows, std::int64_t columns, std::int64_t table_rows) {
    __shared__ std::int64_t list[kThreads];
    __shared__ int warp_counts[kWarps];
    const std::int64_t row = blockIdx.x;
    const std::int32_t token = tokens[row];
    if (token < 0 || token >= table_rows || has_earlier(tokens, row, token)) return;
    float sums[kVectors][8] = {};
    for (std::int64_t base = row; base < rows; base += kThreads) {
        const std::int64_t place = base + threadIdx.x;
        const bool matches = place < rows && tokens[place] == token;
        const int count = list_matches(matches, place, list, warp_counts);
        for (int i = 0; i < count; ++i) add_row(dy + list[i] * columns, columns, sums);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const std::int64_t column = blockIdx.y * kSlice + (v * kThreads + threadIdx.x) * kVector;
        if (column >= columns) continue;
#pragma unroll
        for (int i = 0; i < 8; ++i) add_to(gradient + token * columns + column + i, sums[v][i]);
    }
}

dim3 grid_of(Extent extent) { return {static_cast<unsigned>(extent.rows), blocks_for(extent.columns, kSlice), 1}; }

}  // namespace

void embedding_forward(const std::int32_t* tokens, const void* table, void* y, Extent extent, std::int64_t table_rows,
                       cudaStream_t stream) {
    forward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(
        tokens, static_cast<const __nv_bfloat16*>(table), static_cast<__nv_bfloat16*>(y), extent.columns, table_rows);
}

void embedding_backward(const std::int32_t* tokens, const void* dy, void* gradient, bool fp32, Extent extent,
                        std::int64_t table_rows, cudaStream_t stream) {
    const auto* from = static_cast<const __nv_bfloat16*>(dy);
    if (fp32) {
        backward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(tokens, from, static_cast<float*>(gradient),
                                                                  extent.rows, extent.columns, table_rows);
    } else {
        backward_kernel<<<grid_of(extent), kThreads, 0, stream>>>(tokens, from, static_cast<__nv_bfloat16*>(gradient),
                                                                  extent.rows, extent.columns, table_rows);
    }
}

void load_embedding_kernels() { load_each(forward_kernel, backward_kernel<float>, backward_kernel<__nv_bfloat16>); }

}  // namespace stowage::executor::kernels
