// A stable counting sort in one launch and without scratch memory: a block for each expert reads all choices twice.
// They are few (1 MiB for 32768 tokens of eight) and stay in the caches, so that this costs less than passes over
// partial counts that must wait for each other.
//
// A block's warps take stretches of the choices, next to each other. Counting the choices of lower experts gives the
// expert's first place; the sums over earlier warps, and a vote inside a warp, give a choice's place behind it.

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/moe.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kUnrolled = 8;  // choices that a lane reads before it looks at them
constexpr int kRound = kUnrolled * kWarp;

__device__ __forceinline__ int warp_sum(int value) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

/// The choices of a warp, a round of them at a time; -1, which is no expert and below all, past the end.
struct Stretch {
    std::int64_t begin;
    std::int64_t end;
};

__device__ __forceinline__ Stretch stretch_of(int warp, std::int64_t count) {
    const std::int64_t rounds = (count + kRound - 1) / kRound;
    const std::int64_t each = (rounds + kWarps - 1) / kWarps * kRound;
    const std::int64_t begin = warp * each < count ? warp * each : count;
    return {begin, begin + each < count ? begin + each : count};
}

__device__ __forceinline__ void read_round(const std::int32_t* __restrict__ assignment, std::int64_t first,
                                           std::int64_t end, int lane, int (&experts)[kUnrolled]) {
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
        const std::int64_t choice = first + u * kWarp + lane;
        experts[u] = choice < end ? __ldg(assignment + choice) : -1;
    }
}

__global__ void __launch_bounds__(kThreads)
    route_kernel(const std::int32_t* __restrict__ assignment, std::int32_t* __restrict__ places,
                 std::int32_t* __restrict__ sources, std::int32_t* __restrict__ counts, std::int64_t count) {
    __shared__ int equal_of_warp[kWarps];
    __shared__ int below_of_warp[kWarps];
    const int expert = static_cast<int>(blockIdx.x);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const Stretch stretch = stretch_of(warp, count);
    int equal = 0;
    int below = 0;
    for (std::int64_t first = stretch.begin; first < stretch.end; first += kRound) {
        int experts[kUnrolled];
        read_round(assignment, first, stretch.end, lane, experts);
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            equal += experts[u] == expert ? 1 : 0;
            below += experts[u] >= 0 && experts[u] < expert ? 1 : 0;
        }
    }
    equal = warp_sum(equal);
    below = warp_sum(below);
    if (lane == 0) {
        equal_of_warp[warp] = equal;
        below_of_warp[warp] = below;
    }
    __syncthreads();
    const int equal_here = equal_of_warp[lane];  // as many warps as lanes
    const int before = warp_sum(lane < warp ? equal_here : 0);
    const int total = warp_sum(equal_here);
    int place = warp_sum(below_of_warp[lane]) + before;
    if (threadIdx.x == 0) counts[expert] = total;

    for (std::int64_t first = stretch.begin; first < stretch.end; first += kRound) {
        int experts[kUnrolled];
        read_round(assignment, first, stretch.end, lane, experts);
#pragma unroll
        for (int u = 0; u < kUnrolled; ++u) {
            const bool ours = experts[u] == expert;
            const unsigned votes = __ballot_sync(kAllLanes, ours);
            if (ours) {
                const int mine = place + __popc(votes & ((1U << lane) - 1U));
                const auto choice = static_cast<std::int32_t>(first + u * kWarp + lane);
                places[choice] = mine;
                sources[mine] = choice;
            }
            place += __popc(votes);
        }
    }
}

static_assert(kWarps == kWarp);

/// A kernel, not a copy: a copy would queue behind those that carry groups to the host, and the main stream with it.
__global__ void counts_kernel(const std::int32_t* __restrict__ counts, volatile std::int32_t* host, int experts) {
    const int expert = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (expert < experts) host[expert] = counts[expert];
    __threadfence_system();
}

}  // namespace

void counts_to_host(const std::int32_t* counts, std::int32_t* host, std::int64_t experts, cudaStream_t stream) {
    constexpr int kCounts = 256;  // threads of a block
    counts_kernel<<<blocks_for(experts, kCounts), kCounts, 0, stream>>>(counts, host, static_cast<int>(experts));
}

void route_rows(const std::int32_t* assignment, std::int32_t* places, std::int32_t* sources, std::int32_t* counts,
                std::int64_t count, std::int64_t experts, cudaStream_t stream) {
    route_kernel<<<static_cast<unsigned>(experts), kThreads, 0, stream>>>(assignment, places, sources, counts, count);
}

void load_routing_kernels() { load_each(route_kernel, counts_kernel); }

}  // namespace stowage::executor::kernels
