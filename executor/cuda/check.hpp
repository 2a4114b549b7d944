#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "executor/cuda/device_error.hpp"

namespace stowage::executor {

/// Throws: DeviceError unless `code` is cudaSuccess, with the message of `failure_message`. The runtime's note of the
/// last error is cleared, so that a later kernel launch is not blamed for it.
void check(cudaError_t code, std::string_view doing, std::source_location where = std::source_location::current());

/// "cudaErrorMemoryAllocation: out of memory, while <doing>, on device 0 (NVIDIA H200) (file:line)". `detail`, if any,
/// stands before the place: what was asked for, what to do.
std::string failure_message(cudaError_t code, std::string_view doing, std::source_location where,
                            std::string_view detail = {});

/// "device 0 (NVIDIA H200)", as much of it as the runtime can tell. Never throws for want of a device.
std::string current_device_text();

/// What a destructor has to say about a failed release; nothing for success, and nothing when the runtime has been
/// unloaded before it, since the process is ending and everything is released with it.
std::optional<std::string> release_failure(cudaError_t code, std::string_view releasing);

/// For destructors: writes the above to standard error, the first time in a process. A failed device fails every
/// release after it, and hundreds of lines would bury the first.
void report_release(cudaError_t code, std::string_view releasing) noexcept;

}  // namespace stowage::executor
