#pragma once

// Multi-latent attention's packed rows, from what its linears made, and back.
//
// Tested by: tests/executor/workload/latent_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor::kernels {

inline constexpr std::int64_t kMostRopeColumns = 256;  ///< columns of a head that are turned

/// A packed row: `heads` queries of head_size, as many keys, then values of value_size.
struct LatentShape {
    std::int64_t rows = 0;  ///< row = place * batch + sequence of the batch
    std::int64_t batch = 1;
    std::int64_t heads = 0;
    std::int64_t head_size = 0;
    std::int64_t value_size = 0;
    std::int64_t rope_size = 0;  ///< last columns of a query's and a key's head, which are turned
    std::int64_t stride = 0;     ///< width of a row of `down`, whose last rope_size columns are every head's key's
};

struct LatentPack {
    const void* q = nullptr;     ///< [rows, heads head_size]
    const void* kv = nullptr;    ///< [rows, heads (head_size - rope_size + value_size)]: a head's key, then its value
    const void* down = nullptr;  ///< [rows, stride]
    const float* table = nullptr;
    void* packed = nullptr;
};
/// Turns pairs (i, i + rope_size / 2) of the last columns by the angles of their place.
void latent_pack_forward(const LatentPack& buffers, LatentShape shape, cudaStream_t stream);

struct LatentUnpack {
    const void* packed_gradient = nullptr;
    const float* table = nullptr;
    void* dq = nullptr;
    void* dkv = nullptr;
    void* ddown = nullptr;  ///< its last columns: the sum over heads, in fp32 and always in the same order
};
void latent_pack_backward(const LatentUnpack& buffers, LatentShape shape, cudaStream_t stream);

}  // namespace stowage::executor::kernels
