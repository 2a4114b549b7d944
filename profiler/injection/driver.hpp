#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "profiler/injection/raw_file.hpp"

namespace stowage::profiler {

/// Calls of the driver, as the process that it injected something into has it.
struct Driver {
    decltype(&cuDriverGetVersion) version = nullptr;
    decltype(&cuDeviceGetCount) count = nullptr;
    decltype(&cuDeviceGetName) name = nullptr;
    decltype(&cuDeviceTotalMem) memory = nullptr;
    decltype(&cuDeviceGetAttribute) attribute = nullptr;
    decltype(&cuDevicePrimaryCtxGetState) state = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&cuDevicePrimaryCtxRelease) release = nullptr;
    decltype(&cuCtxSetCurrent) set_current = nullptr;
    decltype(&cuCtxSynchronize) synchronize = nullptr;

    /// Those that the runtime has a context on.
    [[nodiscard]] std::vector<CUdevice> used() const;
};

/// Nothing if no driver is loaded, or one without these calls.
std::optional<Driver> loaded_driver();

/// The devices that this process uses through the runtime.
std::vector<UsedDevice> used_devices();

}  // namespace stowage::profiler
