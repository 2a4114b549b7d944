#pragma once

// The optimizer's kernels: length of the gradient, and AdamW (Loshchilov, Hutter, "Decoupled weight decay
// regularization", ICLR 2019). Deterministic; counts are multiples of 8, buffers start at multiples of 16 bytes.
//
// Tested by: tests/executor/workload/optimizer_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stowage::executor::kernels {

/// Moments, epsilon and decay are Megatron's defaults. It has none for the rate: a small one, so that any model stays
/// finite for as many steps as are measured.
struct AdamRates {
    float rate = 1e-5F;
    float beta1 = 0.9F;
    float beta2 = 0.999F;
    float epsilon = 1e-8F;
    float decay = 0.01F;
};

/// norm[0] = the gradient's length, norm[1] = min(1, most / (length + 1e-6)). `fp32`: the gradient, else bf16.
void gradient_norm(const void* gradient, bool fp32, float* norm, float* partials, std::int64_t count,
                   std::int64_t blocks, float most, cudaStream_t stream);

struct AdamBuffers {
    const void* gradient = nullptr;
    const float* norm = nullptr;  ///< as gradient_norm leaves it: the gradient is multiplied by the second number
    float* master = nullptr;
    float* first = nullptr;
    float* second = nullptr;
    void* parameters = nullptr;  ///< bf16, master rounded
};
/// Moments are corrected for having begun at zero, in step *step + 1.
void adam_update(const AdamBuffers& buffers, bool fp32, std::int64_t count, const std::uint64_t* step, AdamRates rates,
                 cudaStream_t stream);

/// fp32 of bf16 numbers: main parameters as they begin.
void widen(const void* from, float* to, std::int64_t count, cudaStream_t stream);

}  // namespace stowage::executor::kernels
