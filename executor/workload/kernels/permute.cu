// Rows to their experts and back. What goes to the experts is written once for each choice, so that writing dominates;
// what comes back is read once for each choice and added up. See Permute for the order that saves reading.

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kMostThreads = 256;
constexpr int kPlaces = 4;  // of a block, so that a thread has as many reads under way

/// Row vectors split over blocks of a size that leaves few threads idle.
struct Slices {
    int threads;
    unsigned blocks;
};

Slices slices_of(std::int64_t columns) {
    const std::int64_t vectors = columns / kVector;
    const unsigned blocks = blocks_for(vectors, kMostThreads);
    const std::int64_t each = (vectors + blocks - 1) / blocks;
    return {static_cast<int>((each + kWarp - 1) / kWarp * kWarp), blocks};
}

__device__ __forceinline__ std::int64_t column_of_thread() {
    return (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kVector;
}

/// Not kept in the caches: nobody reads it before others have taken its place there.
__device__ __forceinline__ void stream_out(__nv_bfloat16* to, const Packed& value) {
    __stcs(reinterpret_cast<Packed*>(to), value);
}
__device__ __forceinline__ Packed stream_in(const __nv_bfloat16* from) {
    return __ldcs(reinterpret_cast<const Packed*>(from));
}

struct PermuteArguments {
    const __nv_bfloat16* x;
    const float* weights;
    const std::int32_t* sources;
    __nv_bfloat16* y;
    float* row_weights;
    std::int64_t places;
    std::int64_t columns;
    std::int64_t topk;
    std::int64_t segments;
};

/// Blocks go along all segments at once: block b is at step b / segments of segment b modulo segments.
__global__ void __launch_bounds__(kMostThreads) permute_kernel(PermuteArguments with) {
    const std::int64_t segment = blockIdx.x % with.segments;
    const std::int64_t first = segment * with.places / with.segments + blockIdx.x / with.segments * kPlaces;
    const std::int64_t end = (segment + 1) * with.places / with.segments;
    const std::int64_t column = column_of_thread();
    std::int32_t sources[kPlaces];
#pragma unroll
    for (int p = 0; p < kPlaces; ++p) sources[p] = first + p < end ? __ldg(with.sources + first + p) : -1;
    if (with.row_weights != nullptr && blockIdx.y == 0 && threadIdx.x < kPlaces && first + threadIdx.x < end) {
        const std::int64_t place = first + threadIdx.x;
        with.row_weights[place] = with.weights[with.sources[place]];
    }
    if (column >= with.columns) return;
    Packed values[kPlaces];
#pragma unroll
    for (int p = 0; p < kPlaces; ++p) {
        const auto token =
            static_cast<std::int64_t>(static_cast<unsigned>(sources[p]) / static_cast<unsigned>(with.topk));
        values[p] = Packed{};
        if (sources[p] >= 0) values[p] = load(with.x + token * with.columns + column);
    }
#pragma unroll
    for (int p = 0; p < kPlaces; ++p) {
        if (sources[p] >= 0) stream_out(with.y + (first + p) * with.columns + column, values[p]);
    }
}

struct UnpermuteArguments {
    const __nv_bfloat16* y;
    const float* row_weights;
    const std::int32_t* places;
    const __nv_bfloat16* addend;
    __nv_bfloat16* z;
    float* weights;
    std::int64_t columns;
    int topk;
};

__device__ __forceinline__ void add_terms(const Packed& packed, float (&sums)[8]) {
    float terms[8];
    unpack(packed, terms);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] += terms[i];
}

/// A block for each token and slice of columns. Choices are read kAtOnce together and added in order.
template <int kAtOnce>
__global__ void __launch_bounds__(kMostThreads) unpermute_kernel(UnpermuteArguments with) {
    const std::int64_t token = blockIdx.x;
    const std::int32_t* places = with.places + token * with.topk;
    if (with.weights != nullptr && blockIdx.y == 0 && threadIdx.x < static_cast<unsigned>(with.topk)) {
        with.weights[token * with.topk + threadIdx.x] = with.row_weights[places[threadIdx.x]];
    }
    const std::int64_t column = column_of_thread();
    if (column >= with.columns) return;
    Packed extra = Packed{};
    if (with.addend != nullptr) extra = stream_in(with.addend + token * with.columns + column);
    float sums[8] = {};
    for (int first = 0; first < with.topk; first += kAtOnce) {
        std::int64_t rows[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) rows[k] = first + k < with.topk ? __ldg(places + first + k) : -1;
        Packed values[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            values[k] = Packed{};
            if (rows[k] >= 0) values[k] = stream_in(with.y + rows[k] * with.columns + column);
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) add_terms(values[k], sums);
    }
    add_terms(extra, sums);
    store(with.z + token * with.columns + column, pack(sums));
}

}  // namespace

void permute(const Permute& buffers, Extent tokens, cudaStream_t stream) {
    const std::int64_t places = tokens.rows * buffers.topk;
    const std::int64_t segments = buffers.segments < places ? buffers.segments : places;
    const std::int64_t longest = (places + segments - 1) / segments;
    const Slices slices = slices_of(tokens.columns);
    const dim3 grid(static_cast<unsigned>(segments) * blocks_for(longest, kPlaces), slices.blocks, 1);
    const PermuteArguments arguments{static_cast<const __nv_bfloat16*>(buffers.x),
                                     buffers.weights,
                                     buffers.sources,
                                     static_cast<__nv_bfloat16*>(buffers.y),
                                     buffers.row_weights,
                                     places,
                                     tokens.columns,
                                     buffers.topk,
                                     segments};
    permute_kernel<<<grid, slices.threads, 0, stream>>>(arguments);
}

void unpermute(const Unpermute& buffers, Extent tokens, cudaStream_t stream) {
    const Slices slices = slices_of(tokens.columns);
    const dim3 grid(static_cast<unsigned>(tokens.rows), slices.blocks, 1);
    const UnpermuteArguments arguments{static_cast<const __nv_bfloat16*>(buffers.y),
                                       buffers.row_weights,
                                       buffers.places,
                                       static_cast<const __nv_bfloat16*>(buffers.addend),
                                       static_cast<__nv_bfloat16*>(buffers.z),
                                       buffers.weights,
                                       tokens.columns,
                                       static_cast<int>(buffers.topk)};
    if (buffers.topk <= 2) {
        unpermute_kernel<2><<<grid, slices.threads, 0, stream>>>(arguments);
    } else if (buffers.topk <= 4) {
        unpermute_kernel<4><<<grid, slices.threads, 0, stream>>>(arguments);
    } else {
        unpermute_kernel<8><<<grid, slices.threads, 0, stream>>>(arguments);
    }
}

void load_permute_kernels() {
    load_each(permute_kernel, unpermute_kernel<2>, unpermute_kernel<4>, unpermute_kernel<8>);
}

}  // namespace stowage::executor::kernels
