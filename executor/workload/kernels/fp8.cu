// Bound by memory. The largest number of a tensor does not depend on the order in which numbers are looked at; parts
// go through memory all the same, since a maximum by atomics would need its place cleared first.
//
// Rounding works on tiles of 128 rows and 64 columns: a thread has 4 rows of 8 columns, writes them as they lie, and
// keeps for each column a word of its 4 rows in shared memory, from which threads take 16 rows of a column at a time.
// Words of a column are stored in an order that depends on the column's octet, so that neither the 32 words that a warp
// writes at once nor the 8 x 4 words that eight threads read at once share a bank.

#include <cuda_fp8.h>

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/fp8.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kScaleThreads = 1024;
constexpr int kUnrolled = 2;  // vectors that a thread reads before it compares

constexpr int kThreads = 256;
constexpr int kTileRows = 128;
constexpr int kTileColumns = 64;
constexpr int kQuadRows = 4;
constexpr int kOctets = kTileColumns / 8;      // threads beside each other
constexpr int kQuads = kTileRows / kQuadRows;  // threads below each other
constexpr int kRunRows = 16;                   // of a column, in one store
constexpr int kRuns = kTileRows / kRunRows;
static_assert(kOctets * kQuads == kThreads);

template <Fp8Format format>
struct Limits;
template <>
struct Limits<Fp8Format::e4m3> {
    static constexpr __nv_fp8_interpretation_t kKind = __NV_E4M3;
    static constexpr float kLargest = 448.0F;
};
template <>
struct Limits<Fp8Format::e5m2> {
    static constexpr __nv_fp8_interpretation_t kKind = __NV_E5M2;
    static constexpr float kLargest = 57344.0F;
};

__device__ __forceinline__ float warp_largest(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
    return value;
}

/// For the first warp; `shared` holds a number for each warp.
__device__ __forceinline__ float block_largest(float value, float* shared) {
    value = warp_largest(value);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    return warp_largest(lane < warps ? shared[lane] : 0.0F);
}

__global__ void __launch_bounds__(kScaleThreads)
    largest_kernel(const __nv_bfloat16* __restrict__ x, float* __restrict__ partials, std::int64_t vectors) {
    __shared__ float shared[kWarp];
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kScaleThreads;
    float largest = 0.0F;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kScaleThreads + threadIdx.x; first < vectors;
         first += stride * kUnrolled) {
        Packed packed[kUnrolled] = {};
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            if (first + u * stride < vectors) packed[u] = load(x + (first + u * stride) * kVector);
        }
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            float values[8];
            unpack(packed[u], values);
#pragma unroll
            for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[i]));
        }
    }
    largest = block_largest(largest, shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = largest;
}

/// One block.
__global__ void __launch_bounds__(kScaleThreads)
    scale_kernel(const float* __restrict__ partials, float* __restrict__ scales, std::int64_t count, float most) {
    __shared__ float shared[kWarp];
    float largest = 0.0F;
    for (std::int64_t p = threadIdx.x; p < count; p += kScaleThreads) largest = fmaxf(largest, partials[p]);
    largest = block_largest(largest, shared);
    if (threadIdx.x != 0) return;
    constexpr float kLargestFloat = 3.402823466e38F;
    float scale = 1.0F;
    if (largest > 0.0F && largest <= kLargestFloat) scale = fminf(__fdiv_rn(most, largest), kLargestFloat);
    scales[0] = __fdiv_rn(1.0F, scale);
    scales[1] = scale;
}

/// Four in a word, the first in its lowest byte.
template <Fp8Format format>
__device__ __forceinline__ unsigned to_fp8(float a, float b, float c, float d) {
    const unsigned low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, Limits<format>::kKind);
    const unsigned high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, Limits<format>::kKind);
    return low | (high << 16);
}

/// Words are rows of four columns and become columns of four rows.
__device__ __forceinline__ void transpose_bytes(unsigned (&words)[4]) {
    const unsigned low01 = __byte_perm(words[0], words[1], 0x5140);
    const unsigned low23 = __byte_perm(words[2], words[3], 0x5140);
    const unsigned high01 = __byte_perm(words[0], words[1], 0x7362);
    const unsigned high23 = __byte_perm(words[2], words[3], 0x7362);
    words[0] = __byte_perm(low01, low23, 0x5410);
    words[1] = __byte_perm(low01, low23, 0x7632);
    words[2] = __byte_perm(high01, high23, 0x5410);
    words[3] = __byte_perm(high01, high23, 0x7632);
}

/// A column's words, quad q at [q ^ 4 (octet of the column)]: runs of four quads stay together.
using Tile = unsigned[kTileColumns][kQuads];

__device__ __forceinline__ void write_runs(const Tile& tile, unsigned char* __restrict__ transposed,
                                           std::int64_t first_row, std::int64_t first_column, Extent extent) {
    for (int item = static_cast<int>(threadIdx.x); item < kTileColumns * kRuns; item += kThreads) {
        const int run = item % kRuns;
        const int column = item / kRuns;
        const std::int64_t row = first_row + run * kRunRows;
        if (row >= extent.rows || first_column + column >= extent.columns) continue;
        const int octet = column / 8;
        const auto words = *reinterpret_cast<const uint4*>(&tile[column][4 * (run ^ octet)]);
        *reinterpret_cast<uint4*>(transposed + (first_column + column) * extent.rows + row) = words;
    }
}

template <Fp8Format format>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const __nv_bfloat16* __restrict__ x, const float* __restrict__ scales,
                    unsigned char* __restrict__ plain, unsigned char* __restrict__ transposed, Extent extent) {
    __shared__ __align__(16) Tile tile;
    const float scale = scales[1];
    const int octet = static_cast<int>(threadIdx.x) % kOctets;
    const int quad = static_cast<int>(threadIdx.x) / kOctets;
    const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTileRows;
    const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTileColumns;
    const std::int64_t row = first_row + quad * kQuadRows;
    const std::int64_t column = first_column + octet * 8;
    unsigned left[kQuadRows] = {};
    unsigned right[kQuadRows] = {};
    if (row < extent.rows && column < extent.columns) {
        Packed packed[kQuadRows];
#pragma unroll
        for (int j = 0; j < kQuadRows; ++j) packed[j] = load(x + (row + j) * extent.columns + column);
#pragma unroll
        for (int j = 0; j < kQuadRows; ++j) {
            float v[8];
            unpack(packed[j], v);
#pragma unroll
            for (int i = 0; i < 8; ++i) v[i] *= scale;
            left[j] = to_fp8<format>(v[0], v[1], v[2], v[3]);
            right[j] = to_fp8<format>(v[4], v[5], v[6], v[7]);
            if (plain != nullptr)
                *reinterpret_cast<uint2*>(plain + (row + j) * extent.columns + column) = make_uint2(left[j], right[j]);
        }
    }
    if (transposed == nullptr) return;
    transpose_bytes(left);
    transpose_bytes(right);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        tile[octet * 8 + i][quad ^ (4 * octet)] = left[i];
        tile[octet * 8 + 4 + i][quad ^ (4 * octet)] = right[i];
    }
    __syncthreads();
    write_runs(tile, transposed, first_row, first_column, extent);
}

template <Fp8Format format>
void launch_quantize(const void* x, const float* scales, void* plain, void* transposed, Extent extent,
                     cudaStream_t stream) {
    const dim3 grid(blocks_for(extent.columns, kTileColumns), blocks_for(extent.rows, kTileRows), 1);
    quantize_kernel<format><<<grid, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(x), scales,
                                                           static_cast<unsigned char*>(plain),
                                                           static_cast<unsigned char*>(transposed), extent);
}

}  // namespace

void fp8_scale(const void* x, Fp8Format format, float* scales, float* partials, Extent extent, std::int64_t count,
               cudaStream_t stream) {
    const std::int64_t vectors = extent.rows * extent.columns / kVector;
    largest_kernel<<<static_cast<unsigned>(count), kScaleThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(x),
                                                                               partials, vectors);
    const float most =
        format == Fp8Format::e4m3 ? Limits<Fp8Format::e4m3>::kLargest : Limits<Fp8Format::e5m2>::kLargest;
    scale_kernel<<<1, kScaleThreads, 0, stream>>>(partials, scales, count, most);
}

void fp8_quantize(const void* x, const float* scales, Fp8Format format, void* plain, void* transposed, Extent extent,
                  cudaStream_t stream) {
    if (format == Fp8Format::e4m3)
        launch_quantize<Fp8Format::e4m3>(x, scales, plain, transposed, extent, stream);
    else
        launch_quantize<Fp8Format::e5m2>(x, scales, plain, transposed, extent, stream);
}

void load_fp8_kernels() {
    load_each(largest_kernel, scale_kernel, quantize_kernel<Fp8Format::e4m3>, quantize_kernel<Fp8Format::e5m2>);
}

}  // namespace stowage::executor::kernels
