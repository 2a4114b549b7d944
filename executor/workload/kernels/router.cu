// The router, a warp for each token: lane l holds the logits of experts l, l + 32, ... in registers.

#include <math_constants.h>

#include <climits>
#include <type_traits>

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kTokens = 4;  // of a block, a warp each
constexpr int kThreads = kTokens * kWarp;
constexpr float kTiny = 1e-20F;  // sigmoids that are all nothing have no sum to be scaled to

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
    }
    return value;
}

/// The greatest over the warp and where it is, the lower place of two equal ones; every lane gets it.
struct Best {
    float value;
    int place;
};
__device__ __forceinline__ bool is_better(float value, int place, const Best& than) {
    return value > than.value || (value == than.value && place < than.place);
}
__device__ __forceinline__ Best warp_best(Best mine) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
        const float value = __shfl_xor_sync(kAllLanes, mine.value, distance);
        const int place = __shfl_xor_sync(kAllLanes, mine.place, distance);
        if (is_better(value, place, mine)) mine = {value, place};
    }
    return mine;
}

template <int kEach>
struct Row {
    float logits[kEach];
    int lane;
    int experts;
    __device__ __forceinline__ int expert(int slot) const { return slot * kWarp + lane; }
};

template <int kEach>
__device__ __forceinline__ Row<kEach> read_row(const float* __restrict__ logits, std::int64_t token, int experts) {
    Row<kEach> row;
    row.lane = static_cast<int>(threadIdx.x) % kWarp;
    row.experts = experts;
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        const int expert = row.expert(slot);
        row.logits[slot] = expert < experts ? __ldg(logits + token * experts + expert) : -CUDART_INF_F;
    }
    return row;
}

/// The greatest logit and the sum of the exponentials below it.
struct Softmax {
    float greatest;
    float sum;
};
template <int kEach>
__device__ __forceinline__ Softmax softmax_of(const Row<kEach>& row) {
    float greatest = -CUDART_INF_F;
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) greatest = fmaxf(greatest, row.logits[slot]);
    greatest = warp_max(greatest);
    float sum = 0.0F;
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) sum += expf(row.logits[slot] - greatest);
    return {greatest, warp_sum(sum)};
}

/// Sum of a group's two best scores, or its only one; the same in every lane. Places are experts.
template <int kEach>
__device__ __forceinline__ float group_score(const Row<kEach>& row, const float (&scores)[kEach], int group,
                                             int group_size) {
    Best first{-CUDART_INF_F, INT_MAX};
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        const int expert = row.expert(slot);
        const bool inside = expert < row.experts && expert / group_size == group;
        if (inside && is_better(scores[slot], expert, first)) first = {scores[slot], expert};
    }
    first = warp_best(first);
    if (group_size == 1) return first.value;
    Best second{-CUDART_INF_F, INT_MAX};
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        const int expert = row.expert(slot);
        const bool inside = expert < row.experts && expert / group_size == group && expert != first.place;
        if (inside && is_better(scores[slot], expert, second)) second = {scores[slot], expert};
    }
    return first.value + warp_best(second).value;
}

/// Scores of experts outside the best groups become minus infinity.
template <int kEach>
__device__ __forceinline__ void keep_best_groups(const Row<kEach>& row, float (&scores)[kEach], int groups,
                                                 int chosen_groups) {
    const int group_size = row.experts / groups;
    float score_of_lane = -CUDART_INF_F;  // lane g: of group g
    for (int group = 0; group < groups; ++group) {
        const float score = group_score(row, scores, group, group_size);
        if (row.lane == group) score_of_lane = score;
    }
    unsigned kept = 0;
    for (int i = 0; i < chosen_groups; ++i) {
        const bool is_candidate = row.lane < groups && (kept >> row.lane & 1U) == 0;
        const Best best = warp_best({is_candidate ? score_of_lane : -CUDART_INF_F, is_candidate ? row.lane : kWarp});
        if (best.place < kWarp) kept |= 1U << best.place;
    }
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        const int expert = row.expert(slot);
        if (expert < row.experts && (kept >> (expert / group_size) & 1U) == 0) scores[slot] = -CUDART_INF_F;
    }
}

struct RouterSizes {
    std::int64_t rows;
    int experts;
    int topk;
    int groups;
    int chosen_groups;
    Router::Scores scores;
    float scale;
};

/// Softmaxes keep the order of logits, but sums of two compare differently: those of softmax_first are of the softmax.
template <int kEach>
__device__ __forceinline__ void scores_of(const Row<kEach>& row, const RouterSizes& sizes, float (&scores)[kEach]) {
    Softmax softmax{0.0F, 1.0F};
    if (sizes.scores == Router::Scores::softmax_first) softmax = softmax_of(row);
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        const float logit = row.logits[slot];
        scores[slot] = logit;
        if (sizes.scores == Router::Scores::sigmoid) scores[slot] = sigmoid(logit);
        if (sizes.scores == Router::Scores::softmax_first) scores[slot] = expf(logit - softmax.greatest) / softmax.sum;
        if (row.expert(slot) >= row.experts) scores[slot] = -CUDART_INF_F;
    }
}

/// Lane k keeps the k-th best.
template <int kEach>
__device__ __forceinline__ int choose(const Row<kEach>& row, const RouterSizes& sizes) {
    float scores[kEach];
    scores_of(row, sizes, scores);
    if (sizes.chosen_groups < sizes.groups) keep_best_groups(row, scores, sizes.groups, sizes.chosen_groups);
    unsigned taken = 0;  // slots of this lane
    int choice = 0;
    for (int k = 0; k < sizes.topk; ++k) {
        Best mine{-CUDART_INF_F, INT_MAX};
#pragma unroll
        for (int slot = 0; slot < kEach; ++slot) {
            const int expert = row.expert(slot);
            const bool is_free = expert < row.experts && (taken >> slot & 1U) == 0;
            if (is_free && is_better(scores[slot], expert, mine)) mine = {scores[slot], expert};
        }
        const Best best = warp_best(mine);
        if (best.place % kWarp == row.lane) taken |= 1U << (best.place / kWarp);
        if (row.lane == k) choice = best.place;
    }
    return choice;
}

/// What lane k < topk knows of the k-th assigned expert: its score before weights are made of it, and the sum of all
/// topk ones. Neither is needed of other lanes, whose score is nothing.
struct Assigned {
    float score;
    float sum;
};
template <int kEach>
__device__ __forceinline__ Assigned assigned_of(const Row<kEach>& row, const RouterSizes& sizes, float logit) {
    const bool is_choice = row.lane < sizes.topk;
    if (sizes.scores == Router::Scores::sigmoid) {
        const float score = is_choice ? sigmoid(logit) : 0.0F;
        return {score, warp_sum(score) + kTiny};
    }
    if (sizes.scores == Router::Scores::softmax_first) {
        const Softmax softmax = softmax_of(row);
        return {is_choice ? expf(logit - softmax.greatest) : 0.0F, softmax.sum};
    }
    const float greatest = warp_max(is_choice ? logit : -CUDART_INF_F);
    const float score = is_choice ? expf(logit - greatest) : 0.0F;
    return {score, warp_sum(score)};
}

/// The token of a warp; past the last one it works on that and writes nothing, so that warps stay whole.
__device__ __forceinline__ std::int64_t token_of_warp() {
    return static_cast<std::int64_t>(blockIdx.x) * kTokens + threadIdx.x / kWarp;
}

template <int kEach>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const float* __restrict__ logits, const std::int32_t* __restrict__ assignment,
                   float* __restrict__ weights, std::int32_t* __restrict__ choice, RouterSizes sizes) {
    const std::int64_t token = token_of_warp();
    if (token >= sizes.rows) return;  // a whole warp
    const Row<kEach> row = read_row<kEach>(logits, token, sizes.experts);
    const bool is_choice = row.lane < sizes.topk;
    const std::int64_t at = token * sizes.topk + row.lane;
    const int expert = is_choice ? assignment[at] : 0;
    const float logit = is_choice ? __ldg(logits + token * sizes.experts + expert) : 0.0F;
    const Assigned assigned = assigned_of(row, sizes, logit);
    const int chosen = choose(row, sizes);
    if (!is_choice) return;
    const float scale = sizes.scores == Router::Scores::softmax ? 1.0F : sizes.scale;
    weights[at] = scale * assigned.score / assigned.sum;
    choice[at] = chosen;
}

/// The gradient of the logit that lane k's weight comes from, as far as it does so directly, and what each expert's
/// probability is multiplied with where the softmax is over all.
///
///   softmax        w_k = s_k / S           dl_k = w_k (dw_k - sum_j w_j dw_j)
///   softmax_first  w_k = c p_k             dl_e = p_e (c dw_e - sum_j w_j dw_j), dw_e = 0 of those not chosen
///   sigmoid        w_k = c s_k / S         dl_k = c / S (dw_k - sum_j s_j dw_j / S) s_k (1 - s_k)
struct LogitGradient {
    float direct;
    float of_all;
};
__device__ __forceinline__ LogitGradient gradient_of(const Assigned& assigned, float dweight,
                                                     const RouterSizes& sizes) {
    const float share = assigned.score / assigned.sum;
    const float mean = warp_sum(share * dweight);
    if (sizes.scores == Router::Scores::softmax) return {share * (dweight - mean), 0.0F};
    if (sizes.scores == Router::Scores::softmax_first) return {sizes.scale * share * dweight, -sizes.scale * mean};
    return {sizes.scale / assigned.sum * (dweight - mean) * assigned.score * (1.0F - assigned.score), 0.0F};
}

template <int kEach>
__global__ void __launch_bounds__(kThreads)
    backward_kernel(const float* __restrict__ logits, const std::int32_t* __restrict__ assignment,
                    const float* __restrict__ dweights, __nv_bfloat16* __restrict__ dlogits, RouterSizes sizes) {
    const std::int64_t token = token_of_warp();
    if (token >= sizes.rows) return;  // a whole warp
    const Row<kEach> row = read_row<kEach>(logits, token, sizes.experts);
    const bool is_choice = row.lane < sizes.topk;
    const std::int64_t at = token * sizes.topk + row.lane;
    const int expert = is_choice ? assignment[at] : -1;
    const float logit = is_choice ? __ldg(logits + token * sizes.experts + expert) : 0.0F;
    const Assigned assigned = assigned_of(row, sizes, logit);
    const LogitGradient gradient = gradient_of(assigned, is_choice ? dweights[at] : 0.0F, sizes);
    float result[kEach] = {};
    if (sizes.scores == Router::Scores::softmax_first) {
        const Softmax softmax = softmax_of(row);
#pragma unroll
        for (int slot = 0; slot < kEach; ++slot) {
            result[slot] = gradient.of_all * expf(row.logits[slot] - softmax.greatest) / softmax.sum;
        }
    }
    for (int k = 0; k < sizes.topk; ++k) {
        const int chosen = __shfl_sync(kAllLanes, expert, k);
        const float direct = __shfl_sync(kAllLanes, gradient.direct, k);
#pragma unroll
        for (int slot = 0; slot < kEach; ++slot) result[slot] += row.expert(slot) == chosen ? direct : 0.0F;
    }
#pragma unroll
    for (int slot = 0; slot < kEach; ++slot) {
        if (row.expert(slot) >= sizes.experts) continue;
        dlogits[token * sizes.experts + row.expert(slot)] = __float2bfloat16_rn(result[slot]);
    }
}

RouterSizes sizes_of(const Router& router) {
    return {router.rows,
            static_cast<int>(router.experts),
            static_cast<int>(router.topk),
            static_cast<int>(router.groups),
            static_cast<int>(router.chosen_groups),
            router.scores,
            router.scale};
}

/// Calls `launch` with how many experts a lane holds, as a type.
template <class Launch>
void with_experts_of_lane(std::int64_t experts, const Launch& launch) {
    if (experts <= kWarp) return launch(std::integral_constant<int, 1>{});
    if (experts <= 2 * kWarp) return launch(std::integral_constant<int, 2>{});
    if (experts <= 4 * kWarp) return launch(std::integral_constant<int, 4>{});
    if (experts <= 8 * kWarp) return launch(std::integral_constant<int, 8>{});
    return launch(std::integral_constant<int, 16>{});
}
static_assert(kMostExperts == 16 * kWarp && kMostGroups == kWarp && kMostChoices <= kWarp);

}  // namespace

void router_forward(const float* logits, const std::int32_t* assignment, float* weights, std::int32_t* choice,
                    const Router& router, cudaStream_t stream) {
    with_experts_of_lane(router.experts, [&](auto each) {
        forward_kernel<decltype(each)::value><<<blocks_for(router.rows, kTokens), kThreads, 0, stream>>>(
            logits, assignment, weights, choice, sizes_of(router));
    });
}

void router_backward(const float* logits, const std::int32_t* assignment, const float* dweights, void* dlogits,
                     const Router& router, cudaStream_t stream) {
    with_experts_of_lane(router.experts, [&](auto each) {
        backward_kernel<decltype(each)::value><<<blocks_for(router.rows, kTokens), kThreads, 0, stream>>>(
            logits, assignment, dweights, static_cast<__nv_bfloat16*>(dlogits), sizes_of(router));
    });
}

void load_router_kernels() {
    load_each(forward_kernel<1>, forward_kernel<2>, forward_kernel<4>, forward_kernel<8>, forward_kernel<16>);
    load_each(backward_kernel<1>, backward_kernel<2>, backward_kernel<4>, backward_kernel<8>, backward_kernel<16>);
}

}  // namespace stowage::executor::kernels
