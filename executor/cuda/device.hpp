#pragma once

#include <optional>
#include <string>

#include "scenarios/types/bytes.hpp"

namespace stowage::executor {

/// What a measurement says of the device that it was made on.
struct DeviceInfo {
    int device = 0;
    std::string name;  ///< "NVIDIA H200"
    int major = 0;     ///< compute capability 9.0: 9
    int minor = 0;     ///< and 0
    int multiprocessors = 0;
    int copy_engines = 0;  ///< asynchronous ones
    types::Bytes l2_cache;
    types::Bytes total_memory;
    types::Bytes free_memory;  ///< at the time of asking
    int driver_version = 0;    ///< of CUDA that the driver knows: 13000 is 13.0
    int runtime_version = 0;   ///< that this was built with
    std::string pci_bus_id;    ///< "0000:1B:00.0"
};

/// Of the current device. Makes its context if there is none yet. Throws: DeviceError.
DeviceInfo current_device();

/// "13.0" for 13000.
std::string cuda_version_text(int version);

/// The oldest device that the code is compiled for.
inline constexpr int kOldestMajor = 8;

/// Why nothing can run on this machine's first visible device: no driver, a driver that is too old, no device, one that
/// is too old; nothing if it can. Never throws, and makes no context.
std::optional<std::string> no_device_reason() noexcept;

}  // namespace stowage::executor
