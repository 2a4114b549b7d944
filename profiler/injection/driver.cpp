#include "profiler/injection/driver.hpp"

#include <dlfcn.h>

#include <array>

namespace stowage::profiler {
namespace {

template <class Function>
bool find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
}

UsedDevice facts_of(const Driver& driver, CUdevice device) {
    UsedDevice used;
    std::array<char, 256> name{};
    if (driver.name(name.data(), static_cast<int>(name.size() - 1), device) == CUDA_SUCCESS) used.name = name.data();
    std::size_t bytes = 0;
    if (driver.memory(&bytes, device) == CUDA_SUCCESS) used.memory = types::Bytes{static_cast<std::int64_t>(bytes)};
    int count = 0;
    if (driver.attribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) == CUDA_SUCCESS)
        used.multiprocessors = count;
    int version = 0;
    if (driver.version(&version) == CUDA_SUCCESS)
        used.driver = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    return used;
}

}  // namespace

std::optional<Driver> loaded_driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return std::nullopt;
    Driver driver;
    const bool found =
        find(library, "cuDriverGetVersion", driver.version) && find(library, "cuDeviceGetCount", driver.count) &&
        find(library, "cuDeviceGetName", driver.name) && find(library, "cuDeviceTotalMem_v2", driver.memory) &&
        find(library, "cuDeviceGetAttribute", driver.attribute) &&
        find(library, "cuDevicePrimaryCtxGetState", driver.state) &&
        find(library, "cuDevicePrimaryCtxRetain", driver.retain) &&
        find(library, "cuDevicePrimaryCtxRelease_v2", driver.release) &&
        find(library, "cuCtxSetCurrent", driver.set_current) && find(library, "cuCtxSynchronize", driver.synchronize);
    return found ? std::optional(driver) : std::nullopt;
}

std::vector<CUdevice> Driver::used() const {
    std::vector<CUdevice> devices;
    int there = 0;
    if (count(&there) != CUDA_SUCCESS) return devices;
    for (int device = 0; device < there; ++device) {
        unsigned flags = 0;
        int active = 0;
        if (state(device, &flags, &active) == CUDA_SUCCESS && active != 0) devices.push_back(device);
    }
    return devices;
}

std::vector<UsedDevice> used_devices() {
    std::vector<UsedDevice> used;
    const std::optional<Driver> driver = loaded_driver();
    if (!driver) return used;
    for (const CUdevice device : driver->used()) used.push_back(facts_of(*driver, device));
    return used;
}

}  // namespace stowage::profiler
