#pragma once

// What no library gives: element-wise work, reductions over rows and columns, losses, and what tests and debugging
// need. One function launches one call of planner/layers/kernel_call.hpp, on the given stream, without allocating.
//
// Every one is deterministic: sums are added in an order that depends on the sizes alone, never on which block came
// first, and there are no floating-point atomics. Matrices are row by row in bf16, arithmetic is in fp32. Rows are read
// 16 bytes at a time: `columns` are multiples of 8 and buffers start at multiples of 16 bytes (see `kVector`).
//
// Errors: a failed launch is found by the caller (cudaGetLastError).
// Tested by: tests/executor/workload/, each against plain arithmetic on the host.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stowage::executor::kernels {

inline constexpr std::int64_t kVector = 8;               ///< elements of bf16 in one access
inline constexpr std::int64_t kMostNormColumns = 16384;  ///< a row of a norm is kept in registers

/// rows x columns of a matrix.
struct Extent {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

/// Which numbers `load_*` writes; the step is read from device memory, so that a captured graph sees the current one.
struct LoadKey {
    std::uint64_t seed = 0;
    const std::uint64_t* step = nullptr;
    std::uint64_t microbatch = 0;
};

void set_step(std::uint64_t* step, std::uint64_t value, cudaStream_t stream);
/// Which places of the stream of tokens lie in rows: `part` rows from place `first` on, as many from `further` places
/// further on, and so on.
struct TokenPlaces {
    std::int64_t first = 0;
    std::int64_t part = 0;
    std::int64_t further = 0;
};
void load_tokens(std::int32_t* tokens, std::int64_t count, std::int64_t vocabulary, TokenPlaces places, LoadKey key,
                 cudaStream_t stream);
void load_hidden(void* out, std::int64_t count, LoadKey key, cudaStream_t stream);

/// Tokens that are not rows of the table (another rank's) give zeros.
void embedding_forward(const std::int32_t* tokens, const void* table, void* y, Extent extent, std::int64_t table_rows,
                       cudaStream_t stream);
/// Adds to `gradient`, in fp32 or bf16, the rows of dy in order of place.
void embedding_backward(const std::int32_t* tokens, const void* dy, void* gradient, bool fp32, Extent extent,
                        std::int64_t table_rows, cudaStream_t stream);

struct NormForward {
    const void* x = nullptr;
    const void* weight = nullptr;
    const void* bias = nullptr;  ///< LayerNorm
    void* y = nullptr;
    float* rstd = nullptr;
    float* mean = nullptr;    ///< LayerNorm
    std::int64_t stride = 0;  ///< elements from row to row of x
    float epsilon = 0;
    bool layer_norm = false;
};
void norm_forward(const NormForward& buffers, Extent extent, cudaStream_t stream);

struct NormBackward {
    const void* x = nullptr;
    const void* weight = nullptr;
    const float* rstd = nullptr;
    const float* mean = nullptr;  ///< LayerNorm
    const void* dy = nullptr;
    const void* residual = nullptr;  ///< added to dx, if any; may be dx
    void* dx = nullptr;
    void* weight_gradient = nullptr;
    void* bias_gradient = nullptr;  ///< LayerNorm
    float* partials = nullptr;      ///< [count, columns], for the bias another such behind it
    std::int64_t stride = 0;        ///< elements from row to row of x and dx
    bool layer_norm = false;
    bool fp32 = false;  ///< the two gradients
};
void norm_backward(const NormBackward& buffers, Extent extent, std::int64_t partials, cudaStream_t stream);

/// Adds to `gradient` the sum of each column of dy.
void bias_gradient(const void* dy, void* gradient, bool fp32, float* partials, Extent extent, std::int64_t count,
                   cudaStream_t stream);
/// gradient[column] += sum over `count` rows of fp32 partial sums, in order.
void add_partials(const float* partials, std::int64_t count, std::int64_t columns, void* gradient, bool fp32,
                  cudaStream_t stream);

/// A packed row is `heads` queries, `groups` keys, `groups` values, each head_size wide.
struct RotaryShape {
    std::int64_t rows = 0;  ///< row = place * batch + sequence of the batch
    std::int64_t batch = 1;
    std::int64_t heads = 0;  ///< of queries
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
};
/// Turns pairs (i, i + head_size / 2) of queries and keys by the angles of their place; `backward` turns them back.
void rotary(void* packed, const float* table, RotaryShape shape, bool backward, cudaStream_t stream);
/// table[place, i] = (cos, sin) of place * base^(-2 i / head_size).
void fill_rotary_table(float* table, std::int64_t sequence, std::int64_t head_size, double base, cudaStream_t stream);

/// `columns` are those of `a`; g has twice as many if gated. GELU is the exact one, by the error function.
void activation_forward(const void* g, void* a, Extent extent, bool gated, cudaStream_t stream);
/// dg may be g, a may be da.
void activation_backward(const void* g, const void* da, void* dg, void* a, Extent extent, bool gated,
                         cudaStream_t stream);

/// What a row's loss counts: `first` times in the first `rows` rows, `later` times behind them.
struct LossScales {
    std::int64_t rows = 0;
    float first = 0;
    float later = 0;
};
/// log-sum-exp of each row, and the scaled sum over rows of (log-sum-exp - the label's logit) into *loss.
void cross_entropy_forward(const void* logits, const std::int32_t* labels, float* log_sum_exp, float* loss,
                           Extent extent, LossScales scales, cudaStream_t stream);
/// logits become (softmax - one at the label) times the row's scale.
void cross_entropy_backward(void* logits, const std::int32_t* labels, const float* log_sum_exp, Extent extent,
                            LossScales scales, cudaStream_t stream);
/// *loss = mean of y^2.
void mean_square_forward(const void* y, float* loss, float* partials, Extent extent, std::int64_t count,
                         cudaStream_t stream);
/// dy = y * scale
void mean_square_backward(const void* y, void* dy, std::int64_t count, float scale, cudaStream_t stream);

}  // namespace stowage::executor::kernels
