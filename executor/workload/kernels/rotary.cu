#include "executor/workload/kernels/turn.cuh"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;

/// A block for each row; a thread takes eight pairs of a head at a time. The row's angles are read once from memory.
template <bool Backward>
__global__ void __launch_bounds__(kThreads)
    rotary_kernel(__nv_bfloat16* __restrict__ packed, const float* __restrict__ table, RotaryShape shape) {
    const std::int64_t row = blockIdx.x;
    const int half = static_cast<int>(shape.head_size / 2);
    const int chunks = half / static_cast<int>(kVector);
    const int items = static_cast<int>(shape.heads + shape.groups) * chunks;
    __nv_bfloat16* base = packed + row * (shape.heads + 2 * shape.groups) * shape.head_size;
    const float* angles = table + row / shape.batch * shape.head_size;
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < items; item += kThreads) {
        const int chunk = item % chunks;
        __nv_bfloat16* first = base + item / chunks * shape.head_size + chunk * kVector;
        float x[8];
        float y[8];
        unpack(load(first), x);
        unpack(load(first + half), y);
        turn<Backward>(x, y, reinterpret_cast<const float4*>(angles + chunk * 2 * kVector));
        store(first, pack(x));
        store(first + half, pack(y));
    }
}

__global__ void __launch_bounds__(kThreads)
    fill_table_kernel(float2* table, std::int64_t count, std::int64_t half, double base) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const auto place = static_cast<double>(i / half);
    const double exponent = -static_cast<double>(i % half) / static_cast<double>(half);
    double sine = 0;
    double cosine = 0;
    sincos(place * pow(base, exponent), &sine, &cosine);
    table[i] = make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

}  // namespace

void rotary(void* packed, const float* table, RotaryShape shape, bool backward, cudaStream_t stream) {
    auto* in_place = static_cast<__nv_bfloat16*>(packed);
    const auto blocks = static_cast<unsigned>(shape.rows);
    if (backward) {
        rotary_kernel<true><<<blocks, kThreads, 0, stream>>>(in_place, table, shape);
    } else {
        rotary_kernel<false><<<blocks, kThreads, 0, stream>>>(in_place, table, shape);
    }
}

void fill_rotary_table(float* table, std::int64_t sequence, std::int64_t head_size, double base, cudaStream_t stream) {
    const std::int64_t half = head_size / 2;
    const std::int64_t count = sequence * half;
    fill_table_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(reinterpret_cast<float2*>(table), count,
                                                                            half, base);
}

void load_rotary_kernels() { load_each(rotary_kernel<false>, rotary_kernel<true>, fill_table_kernel); }

}  // namespace stowage::executor::kernels
