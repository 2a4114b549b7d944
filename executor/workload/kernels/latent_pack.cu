// A block for each row. Threads take 16 bytes of a head at a time, or two that are turned as pairs.
//
// The gradient of the columns that all keys share is a sum over heads. Threads that hold the same eight columns take
// every n-th head each; their sums are added in the order of threads.

#include "executor/workload/kernels/latent_pack.hpp"
#include "executor/workload/kernels/turn.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;

/// Sizes of a row, in elements.
struct Widths {
    __device__ explicit Widths(const LatentShape& shape)
        : heads(static_cast<int>(shape.heads)),
          head(static_cast<int>(shape.head_size)),
          value(static_cast<int>(shape.value_size)),
          rope(static_cast<int>(shape.rope_size)),
          plain(head - rope),
          key_value(plain + value) {}
    int heads;
    int head;
    int value;
    int rope;
    int plain;      ///< columns of a query or key that are not turned
    int key_value;  ///< of a head as kv_up makes it

    [[nodiscard]] __device__ std::int64_t packed() const {
        return static_cast<std::int64_t>(heads) * (2 * head + value);
    }
};

__device__ __forceinline__ const float* angles_of(const float* table, const LatentShape& shape) {
    return table + blockIdx.x / shape.batch * shape.rope_size;
}

/// The plain columns of every head, from rows of heads `from_width` apart to such `to_width` apart.
__device__ __forceinline__ void copy_heads(const __nv_bfloat16* from, int from_width, __nv_bfloat16* to, int to_width,
                                           int columns, int heads) {
    const int chunks = columns / static_cast<int>(kVector);
    for (int item = static_cast<int>(threadIdx.x); item < heads * chunks; item += kThreads) {
        const int head = item / chunks;
        const int column = (item - head * chunks) * static_cast<int>(kVector);
        store(to + static_cast<std::int64_t>(head) * to_width + column,
              load(from + static_cast<std::int64_t>(head) * from_width + column));
    }
}

/// `rope` columns of every head, turned.
template <bool Backward>
__device__ __forceinline__ void turn_heads(const __nv_bfloat16* from, int from_width, __nv_bfloat16* to, int to_width,
                                           int rope, int heads, const float* angles) {
    const int half = rope / 2;
    const int chunks = half / static_cast<int>(kVector);
    for (int item = static_cast<int>(threadIdx.x); item < heads * chunks; item += kThreads) {
        const int head = item / chunks;
        const int chunk = item - head * chunks;
        const __nv_bfloat16* source = from + static_cast<std::int64_t>(head) * from_width + chunk * kVector;
        __nv_bfloat16* target = to + static_cast<std::int64_t>(head) * to_width + chunk * kVector;
        float x[8];
        float y[8];
        unpack(load(source), x);
        unpack(load(source + half), y);
        turn<Backward>(x, y, reinterpret_cast<const float4*>(angles + chunk * 2 * kVector));
        store(target, pack(x));
        store(target + half, pack(y));
    }
}

__global__ void __launch_bounds__(kThreads)
    pack_kernel(const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ kv,
                const __nv_bfloat16* __restrict__ down, const float* __restrict__ table,
                __nv_bfloat16* __restrict__ packed, LatentShape shape) {
    const Widths w(shape);
    const std::int64_t row = blockIdx.x;
    const float* angles = angles_of(table, shape);
    const __nv_bfloat16* query = q + row * w.heads * w.head;
    const __nv_bfloat16* key_value = kv + row * w.heads * w.key_value;
    __nv_bfloat16* queries = packed + row * w.packed();
    __nv_bfloat16* keys = queries + w.heads * w.head;
    copy_heads(query, w.head, queries, w.head, w.plain, w.heads);
    turn_heads<false>(query + w.plain, w.head, queries + w.plain, w.head, w.rope, w.heads, angles);
    copy_heads(key_value, w.key_value, keys, w.head, w.plain, w.heads);
    turn_heads<false>(down + (row + 1) * shape.stride - w.rope, 0, keys + w.plain, w.head, w.rope, w.heads, angles);
    copy_heads(key_value + w.plain, w.key_value, keys + w.heads * w.head, w.value, w.value, w.heads);
}

/// Sums over heads of `rope` columns into `sums`[kThreads / (rope / 8)][rope]; returns how many there are.
__device__ __forceinline__ int sum_heads(const __nv_bfloat16* keys, int width, int rope, int heads, float* sums) {
    const int chunks = rope / static_cast<int>(kVector);
    const int parts = kThreads / chunks;
    const int part = static_cast<int>(threadIdx.x) / chunks;
    const int chunk = static_cast<int>(threadIdx.x) % chunks;
    float sum[8] = {};
    for (int head = part; part < parts && head < heads; head += parts) {
        float x[8];
        unpack(load(keys + static_cast<std::int64_t>(head) * width + chunk * kVector), x);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] += x[i];
    }
    if (part < parts) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[part * rope + chunk * static_cast<int>(kVector) + i] = sum[i];
    }
    return parts;
}

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __nv_bfloat16* __restrict__ packed, const float* __restrict__ table,
                  __nv_bfloat16* __restrict__ dq, __nv_bfloat16* __restrict__ dkv, __nv_bfloat16* __restrict__ ddown,
                  LatentShape shape) {
    __shared__ float sums[kThreads * kVector];
    const Widths w(shape);
    const std::int64_t row = blockIdx.x;
    const float* angles = angles_of(table, shape);
    const __nv_bfloat16* queries = packed + row * w.packed();
    const __nv_bfloat16* keys = queries + w.heads * w.head;
    __nv_bfloat16* query = dq + row * w.heads * w.head;
    __nv_bfloat16* key_value = dkv + row * w.heads * w.key_value;
    const int parts = sum_heads(keys + w.plain, w.head, w.rope, w.heads, sums);
    copy_heads(queries, w.head, query, w.head, w.plain, w.heads);
    turn_heads<true>(queries + w.plain, w.head, query + w.plain, w.head, w.rope, w.heads, angles);
    copy_heads(keys, w.head, key_value, w.key_value, w.plain, w.heads);
    copy_heads(keys + w.heads * w.head, w.value, key_value + w.plain, w.key_value, w.value, w.heads);
    __syncthreads();
    const int half = w.rope / 2;
    const int i = static_cast<int>(threadIdx.x);
    if (i >= half) return;
    float x = 0.0F;
    float y = 0.0F;
    for (int part = 0; part < parts; ++part) {
        x += sums[part * w.rope + i];
        y += sums[part * w.rope + half + i];
    }
    const float cosine = angles[2 * i];
    const float sine = angles[2 * i + 1];
    __nv_bfloat16* last = ddown + (row + 1) * shape.stride - w.rope;
    last[i] = __float2bfloat16_rn(x * cosine + y * sine);
    last[half + i] = __float2bfloat16_rn(y * cosine - x * sine);
}

const __nv_bfloat16* in(const void* from) { return static_cast<const __nv_bfloat16*>(from); }
__nv_bfloat16* out(void* to) { return static_cast<__nv_bfloat16*>(to); }

}  // namespace

void latent_pack_forward(const LatentPack& buffers, LatentShape shape, cudaStream_t stream) {
    pack_kernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
        in(buffers.q), in(buffers.kv), in(buffers.down), buffers.table, out(buffers.packed), shape);
}

void latent_pack_backward(const LatentUnpack& buffers, LatentShape shape, cudaStream_t stream) {
    unpack_kernel<<<static_cast<unsigned>(shape.rows), kThreads, 0, stream>>>(
        in(buffers.packed_gradient), buffers.table, out(buffers.dq), out(buffers.dkv), out(buffers.ddown), shape);
}

void load_latent_pack_kernels() { load_each(pack_kernel, unpack_kernel); }

}  // namespace stowage::executor::kernels
