#pragma once

// What layers of experts need beside matrix products: routing, moving rows to their experts and back, and the
// activation that is weighted. One function launches one call of planner/layers/kernel_call.hpp, on the given stream,
// without allocating, and deterministically, as in kernels.hpp. T tokens have `topk` choices each, one expert a choice.
//
// Errors: a failed launch is found by the caller (cudaGetLastError).
// Tested by: tests/executor/workload/moe_routing_gpu_test.cpp, moe_rows_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor::kernels {

inline constexpr std::int64_t kMostChoices = 16;   ///< of a token
inline constexpr std::int64_t kMostExperts = 512;  ///< a row of scores is kept in the registers of a warp
inline constexpr std::int64_t kMostGroups = 32;    ///< of experts: a lane each

/// From logits to weights. A `softmax` over the chosen experts; one over all, times `scale` (softmax_first); or
/// sigmoids of the chosen, scaled to a sum of `scale` (sigmoid).
struct Router {
    enum class Scores : std::uint8_t { softmax, softmax_first, sigmoid };
    std::int64_t rows = 0;
    std::int64_t experts = 0;
    std::int64_t topk = 0;
    std::int64_t groups = 1;         ///< of experts, next to each other; each as good as its two best together
    std::int64_t chosen_groups = 1;  ///< how many of them a token may choose from
    Scores scores = Scores::softmax;
    float scale = 1;
};
/// weights[T, topk] of the assigned experts; choice[T, topk]: the best by their scores, best first, the lower number
/// of two equal ones.
void router_forward(const float* logits, const std::int32_t* assignment, float* weights, std::int32_t* choice,
                    const Router& router, cudaStream_t stream);
/// dlogits in bf16.
void router_backward(const float* logits, const std::int32_t* assignment, const float* dweights, void* dlogits,
                     const Router& router, cudaStream_t stream);

/// A stable counting sort of `count` choices by expert: places[choice], sources[place] (its inverse), counts[expert].
/// Every choice is an expert from 0 to experts - 1. Cost: every expert's block reads all choices twice, from the cache.
void route_rows(const std::int32_t* assignment, std::int32_t* places, std::int32_t* sources, std::int32_t* counts,
                std::int64_t count, std::int64_t experts, cudaStream_t stream);

/// Writes the counts into pinned memory of the host, which sees them when it has waited for the stream. No engine for
/// copies is used. Cost: one trip over the link.
void counts_to_host(const std::int32_t* counts, std::int32_t* host, std::int64_t experts, cudaStream_t stream);

/// y[place] = x[sources[place] / topk], and the same of fp32 weights, one a choice, where there are any. `segments`:
/// places are visited in so many parts side by side, best one for each expert, so that a token's copies are made at
/// about the same time and its row is read from memory once.
struct Permute {
    const void* x = nullptr;
    const float* weights = nullptr;
    const std::int32_t* sources = nullptr;
    void* y = nullptr;
    float* row_weights = nullptr;
    std::int64_t topk = 1;
    std::int64_t segments = 1;
};
/// `tokens` are the rows and columns of x.
void permute(const Permute& buffers, Extent tokens, cudaStream_t stream);

/// z[token] = the sum over its choices, in order, of y[places[choice]] (+ addend[token]), rounded once; and
/// weights[choice] = row_weights[place], where there are any.
struct Unpermute {
    const void* y = nullptr;
    const float* row_weights = nullptr;
    const std::int32_t* places = nullptr;
    const void* addend = nullptr;
    void* z = nullptr;
    float* weights = nullptr;
    std::int64_t topk = 1;
};
void unpermute(const Unpermute& buffers, Extent tokens, cudaStream_t stream);

/// Rows in blocks by (rank, expert) on one side and by (expert, rank) on the other, each side's rows spread over its
/// blocks as evenly as whole rows allow. Row i of a block of y is row i modulo its length of the same block of x;
/// zeros where that is empty.
struct Exchange {
    const void* x = nullptr;
    const float* weights = nullptr;
    void* y = nullptr;
    float* y_weights = nullptr;
    std::int64_t x_rows = 0;
    std::int64_t ranks = 1;
    std::int64_t experts = 1;  ///< of a rank
    bool to_experts = false;   ///< y is by expert and rank
};
/// `received` are the rows and columns of y.
void exchange_rows(const Exchange& buffers, Extent received, cudaStream_t stream);

/// a = silu(gate) value weight; g rows hold the gate, then the value.
void weighted_activation_forward(const void* g, const float* weights, void* a, Extent extent, cudaStream_t stream);
struct WeightedActivationBackward {
    const void* g = nullptr;
    const float* weights = nullptr;
    const void* da = nullptr;
    void* dg = nullptr;         ///< may be g
    void* a = nullptr;          ///< computed again; may be da
    float* dweights = nullptr;  ///< of a row: the sum of da silu(gate) value
};
void weighted_activation_backward(const WeightedActivationBackward& buffers, Extent extent, cudaStream_t stream);

/// y: x `times` over, one behind the other.
void repeat_rows(const void* x, void* y, std::int64_t count, std::int64_t times, cudaStream_t stream);
/// both: row by row the columns of first, then those of second, `extent` of each; with one row one matrix behind the
/// other. The three do not overlap.
void join_columns(const void* first, const void* second, void* both, Extent extent, cudaStream_t stream);
void split_columns(const void* both, void* first, void* second, Extent extent, cudaStream_t stream);
/// x += y, in bf16.
void add(void* x, const void* y, std::int64_t count, cudaStream_t stream);

}  // namespace stowage::executor::kernels
