#include "executor/cuda/device.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"

namespace stowage::executor {
namespace {

int driver_version() {
    int version = 0;
    check(cudaDriverGetVersion(&version), "asking for the version of the driver");
    return version;
}

int runtime_version() {
    int version = 0;
    check(cudaRuntimeGetVersion(&version), "asking for the version of the runtime");
    return version;
}

std::string bus_id_of(int device) {
    std::array<char, 32> bus_id{};
    check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
          "asking for the bus address of a device");
    return bus_id.data();
}

std::optional<std::string> driver_reason() {
    const int driver = driver_version();
    if (driver == 0) return "no NVIDIA driver was found";
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    static_cast<void>(cudaGetLastError());
    if (code == cudaErrorInsufficientDriver)
        return fmt::format("the driver knows CUDA {}, this was built with CUDA {}: a newer driver is needed",
                           cuda_version_text(driver), cuda_version_text(runtime_version()));
    if (code == cudaErrorNoDevice || (code == cudaSuccess && devices == 0)) return "the driver sees no CUDA device";
    if (code != cudaSuccess)
        return fmt::format("{}: {}, while counting devices", cudaGetErrorName(code), cudaGetErrorString(code));
    return std::nullopt;
}

std::optional<std::string> age_reason() {
    int device = 0;
    int major = 0;
    int minor = 0;
    check(cudaGetDevice(&device), "asking for the current device");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for a device's age");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for a device's age");
    if (major >= kOldestMajor) return std::nullopt;
    return fmt::format("{} has compute capability {}.{}, at least {}.0 is needed", current_device_text(), major, minor,
                       kOldestMajor);
}

}  // namespace

DeviceInfo current_device() {
    DeviceInfo info;
    check(cudaGetDevice(&info.device), "asking for the current device");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, info.device), "asking for the properties of a device");
    const MemoryRoom room = device_memory_room();
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    info.multiprocessors = properties.multiProcessorCount;
    info.copy_engines = properties.asyncEngineCount;
    info.l2_cache = types::Bytes{properties.l2CacheSize};
    info.total_memory = room.total;
    info.free_memory = room.free;
    info.driver_version = driver_version();
    info.runtime_version = runtime_version();
    info.pci_bus_id = bus_id_of(info.device);
    return info;
}

std::string cuda_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::optional<std::string> no_device_reason() noexcept {
    try {
        std::optional<std::string> reason = driver_reason();
        return reason ? reason : age_reason();
    } catch (const std::exception& error) {
        return error.what();
    }
}

}  // namespace stowage::executor
