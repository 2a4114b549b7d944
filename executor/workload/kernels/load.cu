#include "executor/workload/kernels/device.cuh"
#include "executor/workload/random.hpp"

namespace stowage::executor::kernels {
namespace {

constexpr int kThreads = 256;

__global__ void set_step_kernel(std::uint64_t* step, std::uint64_t value) { *step = value; }

__global__ void __launch_bounds__(kThreads)
    load_tokens_kernel(std::int32_t* tokens, std::int64_t count, std::uint64_t vocabulary, TokenPlaces places,
                       LoadKey key) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= count) return;
    const std::uint64_t stream = stream_key(key.seed, *key.step, key.microbatch);
    const std::int64_t place = places.first + i % places.part + i / places.part * places.further;
    tokens[i] = random_token(stream, static_cast<std::uint64_t>(place), vocabulary);
}

/// Eight elements a thread: two words.
__global__ void __launch_bounds__(kThreads) load_hidden_kernel(__nv_bfloat16* out, std::int64_t count, LoadKey key) {
    const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
    if (first >= count) return;
    const std::uint64_t stream = stream_key(key.seed, *key.step, key.microbatch);
    float values[8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const std::uint64_t word = random_word(stream, static_cast<std::uint64_t>(first) / kLanes + half);
#pragma unroll
        for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
            values[half * kLanes + lane] = hidden_of_word(word, lane);
        }
    }
    if (first + kVector <= count) {
        store(out + first, pack(values));
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (first + i < count) out[first + i] = __float2bfloat16_rn(values[i]);
    }
}

}  // namespace

void set_step(std::uint64_t* step, std::uint64_t value, cudaStream_t stream) {
    set_step_kernel<<<1, 1, 0, stream>>>(step, value);
}

void load_tokens(std::int32_t* tokens, std::int64_t count, std::int64_t vocabulary, TokenPlaces places, LoadKey key,
                 cudaStream_t stream) {
    load_tokens_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(
        tokens, count, static_cast<std::uint64_t>(vocabulary), places, key);
}

void load_hidden(void* out, std::int64_t count, LoadKey key, cudaStream_t stream) {
    load_hidden_kernel<<<blocks_for(count, kThreads * kVector), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(out),
                                                                                       count, key);
}

void load_input_kernels() { load_each(set_step_kernel, load_tokens_kernel, load_hidden_kernel); }

}  // namespace stowage::executor::kernels
