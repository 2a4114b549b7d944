#pragma once

// Small allocations of the workload itself, outside of any plan: the step's number, and what is needed while GEMM
// algorithms are measured.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"

namespace stowage::executor {

using DeviceMemory = UniqueHandle<void*, DeviceMemoryTraits>;

/// On the current device; at least one byte. Throws: DeviceError.
inline DeviceMemory allocate_on_device(std::int64_t bytes, std::string_view doing) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes < 1 ? 1 : bytes)), doing);
    return DeviceMemory(memory);
}

}  // namespace stowage::executor
