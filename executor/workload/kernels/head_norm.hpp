#pragma once

// RMSNorm of the heads of query and key in a packed tensor, with the rotary turn behind it.
//
// Tested by: tests/executor/workload/head_norm_gpu_test.cpp.

#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor::kernels {

inline constexpr std::int64_t kMostHeadNormColumns = 128;  ///< and a multiple of 16

struct HeadNormForward {
    const void* packed = nullptr;
    const void* query_weight = nullptr;
    const void* key_weight = nullptr;
    const float* table = nullptr;  ///< none: nothing is turned
    void* out = nullptr;           ///< as `packed`, values as they are
};
/// Cost: `packed` read once, `out` written once.
void head_norm_forward(const HeadNormForward& buffers, RotaryShape shape, float epsilon, cudaStream_t stream);

struct HeadNormBackward {
    const void* packed = nullptr;  ///< as before the norm
    const void* query_weight = nullptr;
    const void* key_weight = nullptr;
    const float* table = nullptr;
    void* gradient = nullptr;  ///< of the forward's result, becomes that of `packed`
    void* query_gradient = nullptr;
    void* key_gradient = nullptr;
    float* partials = nullptr;  ///< [2, partials, head_size]
    bool fp32 = false;          ///< the weights' gradients
};
/// Cost: queries and keys of both tensors read once, those of the gradient written once.
void head_norm_backward(const HeadNormBackward& buffers, RotaryShape shape, float epsilon, std::int64_t partials,
                        cudaStream_t stream);

}  // namespace stowage::executor::kernels
