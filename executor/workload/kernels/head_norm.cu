// RMSNorm of every head of query and key in a packed row, and the rotary turn behind it.
//
// Sixteen lanes share a head, eight elements each; a head is at most 128 wide. With r = 1 / rms(x), x^ = x r and
// g = dy weight, dy the gradient turned back:   y = x^ weight     dx = r (g - x^ mean(g x^))     d weight += dy x^
// The rows of a block are p, p + partials, ..., so that its part of the weights' gradients is summed in one order.

#include "executor/workload/kernels/device.cuh"
#include "executor/workload/kernels/head_norm.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kForwardThreads = 256;
constexpr int kBackwardThreads = 512;
constexpr int kLanes = 16;

/// The same for every lane of a head; lanes are paired the same way each time.
__device__ __forceinline__ float head_sum(float value) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

/// A lane's eight columns of a head.
struct Lane {
    int chunk;  ///< columns 8 chunk to 8 chunk + 7
    int half;   ///< chunks of half a head
    bool used;  ///< heads narrower than 128 leave lanes over
};

__device__ __forceinline__ Lane lane_of(int head_size) {
    const int chunk = static_cast<int>(threadIdx.x) % kLanes;
    const int chunks = head_size / static_cast<int>(kVector);
    return {chunk, chunks / 2, chunk < chunks};
}

/// Turns columns i and i + head_size / 2 as a pair, by the angle at `angles`[i]. All lanes of a warp call it.
template <bool Backward>
__device__ __forceinline__ void turn(float (&values)[8], const Lane& lane, const float* angles) {
    const bool first = lane.chunk < lane.half;
    const int group = static_cast<int>(threadIdx.x) % kWarp / kLanes * kLanes;
    const int partner = group + (lane.used ? (first ? lane.chunk + lane.half : lane.chunk - lane.half) : lane.chunk);
    const float* at = angles + (first ? lane.chunk : lane.chunk - lane.half) * 2 * kVector;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float other = __shfl_sync(kAllLanes, values[i], partner);
        if (!lane.used) continue;
        const float sine = first != Backward ? -at[2 * i + 1] : at[2 * i + 1];
        values[i] = values[i] * at[2 * i] + other * sine;
    }
}

template <bool Rotary>
__global__ void __launch_bounds__(kForwardThreads)
    forward_kernel(const __nv_bfloat16* __restrict__ packed, const __nv_bfloat16* __restrict__ query_weight,
                   const __nv_bfloat16* __restrict__ key_weight, const float* __restrict__ table,
                   __nv_bfloat16* __restrict__ out, RotaryShape shape, float epsilon) {
    const std::int64_t row = blockIdx.x;
    const int size = static_cast<int>(shape.head_size);
    const int heads = static_cast<int>(shape.heads);
    const int normed = heads + static_cast<int>(shape.groups);
    const int all = normed + static_cast<int>(shape.groups);
    const Lane lane = lane_of(size);
    const float* angles = Rotary ? table + row / shape.batch * size : nullptr;
    constexpr int kHeads = kForwardThreads / kLanes;
    const std::int64_t base = row * all * size;
    const int rounds = (all + kHeads - 1) / kHeads;
#pragma unroll 2
    for (int round = 0; round < rounds; ++round) {
        const int head = round * kHeads + static_cast<int>(threadIdx.x) / kLanes;
        const bool there = lane.used && head < all;
        const std::int64_t place = base + static_cast<std::int64_t>(head) * size + lane.chunk * kVector;
        Packed raw{};
        if (there) raw = load(packed + place);
        float x[8];
        unpack(raw, x);
        float squares = 0.0F;
#pragma unroll
        for (int i = 0; i < 8; ++i) squares += x[i] * x[i];
        const float inverse = rsqrtf(head_sum(squares) / static_cast<float>(size) + epsilon);
        float w[8] = {};
        if (there && head < normed) unpack(load((head < heads ? query_weight : key_weight) + lane.chunk * kVector), w);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] *= inverse * w[i];
        if constexpr (Rotary) turn<false>(x, lane, angles);
        if (there) store(out + place, head < normed ? pack(x) : raw);
    }
}

/// Columns of x and of the gradient of y, as they are in the registers of a lane.
struct Backward {
    float weight[8];
    float sums[8];  ///< this lane's part of the weight's gradient
};

__device__ __forceinline__ void head_backward(const float (&x)[8], float (&dy)[8], Backward& state, float inverse,
                                              float size) {
    float product = 0.0F;
#pragma unroll
    for (int i = 0; i < 8; ++i) product += dy[i] * state.weight[i] * x[i] * inverse;
    const float mean = head_sum(product) / size;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const float normal = x[i] * inverse;
        state.sums[i] += dy[i] * normal;
        dy[i] = inverse * (dy[i] * state.weight[i] - normal * mean);
    }
}

template <bool Rotary>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_kernel(HeadNormBackward buffers, RotaryShape shape, float epsilon) {
    constexpr int kHeads = kBackwardThreads / kLanes;
    __shared__ float shared[kHeads][kLanes * kVector];
    const auto* packed = static_cast<const __nv_bfloat16*>(buffers.packed);
    auto* gradient = static_cast<__nv_bfloat16*>(buffers.gradient);
    const int size = static_cast<int>(shape.head_size);
    const Lane lane = lane_of(size);
    const int slot = static_cast<int>(threadIdx.x) / kLanes;
    const int all = static_cast<int>(shape.heads + 2 * shape.groups);
    const std::int64_t blocks = gridDim.x;
    for (int part = 0; part < 2; ++part) {  // queries, then keys
        const int first = part == 0 ? 0 : static_cast<int>(shape.heads);
        const int count = static_cast<int>(part == 0 ? shape.heads : shape.groups);
        const auto* weight = static_cast<const __nv_bfloat16*>(part == 0 ? buffers.query_weight : buffers.key_weight);
        Backward state{};
        if (lane.used) unpack(load(weight + lane.chunk * kVector), state.weight);
        const std::int64_t rows = (shape.rows - blockIdx.x + blocks - 1) / blocks;
        const std::int64_t items = rows * count;
        const std::int64_t rounds = (items + kHeads - 1) / kHeads;
#pragma unroll 2
        for (std::int64_t round = 0; round < rounds; ++round) {
            const std::int64_t item = round * kHeads + slot;
            const bool there = lane.used && item < items;
            const std::int64_t row = blockIdx.x + item / count * blocks;
            const std::int64_t place = (row * all + first + item % count) * size + lane.chunk * kVector;
            float x[8] = {};
            float dy[8] = {};
            if (there) {
                unpack(load(packed + place), x);
                unpack(load(gradient + place), dy);
            }
            if constexpr (Rotary) turn<true>(dy, lane, buffers.table + (item < items ? row / shape.batch * size : 0));
            float squares = 0.0F;
#pragma unroll
            for (int i = 0; i < 8; ++i) squares += x[i] * x[i];
            const float inverse = rsqrtf(head_sum(squares) / static_cast<float>(size) + epsilon);
            head_backward(x, dy, state, inverse, static_cast<float>(size));
            if (there) store(gradient + place, pack(dy));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) shared[slot][lane.chunk * kVector + i] = state.sums[i];
        __syncthreads();
        float* partials = buffers.partials + (part * blocks + blockIdx.x) * size;
        for (int column = static_cast<int>(threadIdx.x); column < size; column += kBackwardThreads) {
            float sum = 0.0F;
            for (int i = 0; i < kHeads; ++i) sum += shared[i][column];
            partials[column] = sum;
        }
        __syncthreads();
    }
}

}  // namespace

void head_norm_forward(const HeadNormForward& buffers, RotaryShape shape, float epsilon, cudaStream_t stream) {
    const auto* packed = static_cast<const __nv_bfloat16*>(buffers.packed);
    const auto* query = static_cast<const __nv_bfloat16*>(buffers.query_weight);
    const auto* key = static_cast<const __nv_bfloat16*>(buffers.key_weight);
    auto* out = static_cast<__nv_bfloat16*>(buffers.out);
    const auto blocks = static_cast<unsigned>(shape.rows);
    if (buffers.table != nullptr) {
        forward_kernel<true>
            <<<blocks, kForwardThreads, 0, stream>>>(packed, query, key, buffers.table, out, shape, epsilon);
    } else {
        forward_kernel<false>
            <<<blocks, kForwardThreads, 0, stream>>>(packed, query, key, buffers.table, out, shape, epsilon);
    }
}

void head_norm_backward(const HeadNormBackward& buffers, RotaryShape shape, float epsilon, std::int64_t partials,
                        cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(partials);
    if (buffers.table != nullptr) {
        backward_kernel<true><<<blocks, kBackwardThreads, 0, stream>>>(buffers, shape, epsilon);
    } else {
        backward_kernel<false><<<blocks, kBackwardThreads, 0, stream>>>(buffers, shape, epsilon);
    }
    const float* of_keys = buffers.partials + partials * shape.head_size;
    add_partials(buffers.partials, partials, shape.head_size, buffers.query_gradient, buffers.fp32, stream);
    add_partials(of_keys, partials, shape.head_size, buffers.key_gradient, buffers.fp32, stream);
}

void load_head_norm_kernels() {
    load_each(forward_kernel<false>, forward_kernel<true>, backward_kernel<false>, backward_kernel<true>);
}

}  // namespace stowage::executor::kernels
