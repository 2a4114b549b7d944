#pragma once

// Small allocations of the workload itself, outside of any plan: the step's number, and what is needed while GEMM
// algorithms are measured.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "executor/cuda/unique_handle.hpp"

namespace stowage::executor {

struct DeviceMemoryTraits {
    static cudaError_t release(void* memory) { return cudaFree(memory); }
    static constexpr const char* kName = "device memory of the workload";
};
using DeviceMemory = UniqueHandle<void*, DeviceMemoryTraits>;

/// On the current device; at least one byte. Throws: DeviceError.
inline DeviceMemory allocate_on_device(std::int64_t bytes, std::string_view doing) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes < 1 ? 1 : bytes)), doing);
    return DeviceMemory(memory);
}

}  // namespace stowage::executor
