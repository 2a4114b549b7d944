#pragma once

// Device code that the kernels share: 16-byte accesses to bf16, and sums over a warp and a block in a fixed order.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "executor/workload/kernels/kernels.hpp"
#include "executor/workload/kernels/loading.hpp"

namespace stowage::executor::kernels {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

/// Eight bf16 as they lie in memory, two to a word. A vector of the compiler's own: a structure of pairs would be read
/// and written four bytes at a time.
using Packed = uint4;

__device__ __forceinline__ Packed load(const __nv_bfloat16* from) { return *reinterpret_cast<const Packed*>(from); }
__device__ __forceinline__ void store(__nv_bfloat16* to, const Packed& value) {
    *reinterpret_cast<Packed*>(to) = value;
}

/// The first of two bf16 lies in the low half; a bf16 is the upper half of the float that equals it.
__device__ __forceinline__ void unpack(const Packed& from, float (&to)[8]) {
    const unsigned words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[2 * i] = __uint_as_float(words[i] << 16);
        to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000U);
    }
}

__device__ __forceinline__ unsigned pack_pair(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    unsigned word = 0;
    memcpy(&word, &pair, sizeof(word));
    return word;
}

__device__ __forceinline__ Packed pack(const float (&from)[8]) {
    return make_uint4(pack_pair(from[0], from[1]), pack_pair(from[2], from[3]), pack_pair(from[4], from[5]),
                      pack_pair(from[6], from[7]));
}

/// Every lane gets the sum; lanes are paired the same way each time.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

/// Every thread gets the two sums over the block. `shared` holds a pair for each warp; free again after the call, if a
/// barrier of the caller's stands before the next.
__device__ __forceinline__ float2 block_sum(float2 value, float2* shared) {
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    value = lane < warps ? shared[lane] : make_float2(0.0F, 0.0F);
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    return value;
}

__device__ __forceinline__ float block_sum(float value, float* shared) {
    value = warp_sum(value);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    const int warps = static_cast<int>(blockDim.x) / kWarp;
    return warp_sum(lane < warps ? shared[lane] : 0.0F);
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
}

/// Asking for a kernel's attributes loads it.
template <class... Kernels>
void load_each(Kernels... kernels) {
    cudaFuncAttributes attributes{};
    (static_cast<void>(cudaFuncGetAttributes(&attributes, kernels)), ...);
}

/// Adds to a main gradient of either type.
__device__ __forceinline__ void add_to(float* gradient, float value) { *gradient += value; }
__device__ __forceinline__ void add_to(__nv_bfloat16* gradient, float value) {
    *gradient = __float2bfloat16_rn(__bfloat162float(*gradient) + value);
}

}  // namespace stowage::executor::kernels
