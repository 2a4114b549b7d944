#pragma once

// Kernels that only a calibration runs. Errors: a failed launch is found by the caller (cudaGetLastError).
//
// Tested by: tests/profiler/calibrate/probe_kernels_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace stowage::calibrate {

/// Nothing, in as many threads as `blocks` of 128.
void empty_kernel(int blocks, cudaStream_t stream);

/// Copies 16 bytes a thread at a time. Both at multiples of 16 bytes; `bytes` too.
void vector_copy(const void* source, void* destination, std::int64_t bytes, cudaStream_t stream);

/// Numbers in a run of a strided view, and the distance from one run to the next: attention's query among packed
/// queries, keys and values with heads of 128.
inline constexpr std::int64_t kRunLength = 128;
inline constexpr std::int64_t kRunDistance = 3 * kRunLength;
/// destination[i] = source[i / 128 * 384 + i % 128], of bf16, one a thread, as a framework's copy of a view does.
void strided_copy(const void* source, void* destination, std::int64_t elements, cudaStream_t stream);

/// FP8 (e4m3) numbers, uniform in -1.75 to 1.75, by place.
void fill_fp8(void* destination, std::int64_t count, cudaStream_t stream);

/// Holds the stream until the host writes something else than 0 to `flag`, which the device sees, or two seconds have
/// gone by.
void hold(const int* flag, cudaStream_t stream);

/// Loads all of them, so that none is loaded while something is measured.
void load_probe_kernels();

}  // namespace stowage::calibrate
