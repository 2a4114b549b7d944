#pragma once

// The numbers that stand in for a data loader: a function of (seed, step, microbatch, index), the same on the host and
// on the device, so that tests know every value and a run can be repeated from any step. The mixer is the finalizer of
// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
//
// Tested by: tests/executor/workload/random_test.cpp (values), load_gpu_test.cpp (host and device agree).

#include <cstdint>

#if defined(__CUDACC__)
#define STOWAGE_HOST_DEVICE __host__ __device__
#else
#define STOWAGE_HOST_DEVICE
#endif

namespace stowage::executor {

inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio, odd
inline constexpr std::uint32_t kLanes = 4;                            ///< 16-bit numbers in one mixed word

/// A bijection of 64-bit words in which every bit of the result depends on every bit of the argument.
STOWAGE_HOST_DEVICE constexpr std::uint64_t mix(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
    return word ^ (word >> 31);
}

/// One stream of numbers for each (seed, step, microbatch).
STOWAGE_HOST_DEVICE constexpr std::uint64_t stream_key(std::uint64_t seed, std::uint64_t step,
                                                       std::uint64_t microbatch) {
    return mix(mix(mix(seed + kGoldenGamma) + step + kGoldenGamma) + microbatch + kGoldenGamma);
}

STOWAGE_HOST_DEVICE constexpr std::uint64_t random_word(std::uint64_t key, std::uint64_t index) {
    return mix(key + index * kGoldenGamma);
}

/// Uniform below `vocabulary`, at most 2^31; the bias of at most vocabulary / 2^32 does not matter here.
STOWAGE_HOST_DEVICE constexpr std::int32_t random_token(std::uint64_t key, std::uint64_t index,
                                                        std::uint64_t vocabulary) {
    return static_cast<std::int32_t>(((random_word(key, index) >> 32) * vocabulary) >> 32);
}

/// Uniform between -sqrt(3) and sqrt(3): mean 0, variance 1. Before rounding to bf16. Four neighbours share a word.
STOWAGE_HOST_DEVICE constexpr float hidden_of_word(std::uint64_t word, std::uint32_t lane) {
    constexpr float kStep = 1.7320508F / 32768.0F;
    const auto bits = static_cast<std::int32_t>((word >> (16 * lane)) & 0xffffU);
    return (static_cast<float>(bits - 32768) + 0.5F) * kStep;
}
STOWAGE_HOST_DEVICE constexpr float random_hidden(std::uint64_t key, std::uint64_t index) {
    return hidden_of_word(random_word(key, index / kLanes), static_cast<std::uint32_t>(index % kLanes));
}

/// What one 8-byte word of a buffer adds to the buffer's digest; depends on every bit of both.
STOWAGE_HOST_DEVICE constexpr std::uint64_t hash_of_word(std::uint64_t word, std::uint64_t place) {
    return mix(word ^ mix(place + kGoldenGamma));
}

/// What a fence holds at `place`.
STOWAGE_HOST_DEVICE constexpr std::uint8_t fence_byte(std::uint64_t place) {
    return static_cast<std::uint8_t>(mix(place + kGoldenGamma) & 0xffU);
}

}  // namespace stowage::executor
