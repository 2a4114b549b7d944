#include "profiler/injection/wait_for_devices.hpp"

#include <cuda.h>
#include <dlfcn.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace stowage::profiler {
namespace {

/// The calls of the driver, which is there in a process that it injected something into.
struct Driver {
    decltype(&cuDeviceGetCount) count = nullptr;
    decltype(&cuDevicePrimaryCtxGetState) state = nullptr;
    decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&cuDevicePrimaryCtxRelease) release = nullptr;
    decltype(&cuCtxSetCurrent) set_current = nullptr;
    decltype(&cuCtxSynchronize) synchronize = nullptr;

    [[nodiscard]] bool is_there() const {
        return count != nullptr && state != nullptr && retain != nullptr && release != nullptr &&
               set_current != nullptr && synchronize != nullptr;
    }
};

template <class Function>
void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
}

Driver loaded_driver() {
    Driver driver;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return driver;
    find(library, "cuDeviceGetCount", driver.count);
    find(library, "cuDevicePrimaryCtxGetState", driver.state);
    find(library, "cuDevicePrimaryCtxRetain", driver.retain);
    find(library, "cuDevicePrimaryCtxRelease_v2", driver.release);
    find(library, "cuCtxSetCurrent", driver.set_current);
    find(library, "cuCtxSynchronize", driver.synchronize);
    return driver;
}

void synchronize_device(const Driver& driver, CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    if (driver.state(device, &flags, &active) != CUDA_SUCCESS || active == 0) return;
    CUcontext context = nullptr;
    if (driver.retain(&context, device) != CUDA_SUCCESS) return;
    if (driver.set_current(context) == CUDA_SUCCESS) static_cast<void>(driver.synchronize());
    static_cast<void>(driver.set_current(nullptr));
    static_cast<void>(driver.release(device));
}

void synchronize_all(const Driver& driver) {
    int devices = 0;
    if (driver.count(&devices) != CUDA_SUCCESS) return;
    for (int device = 0; device < devices; ++device) synchronize_device(driver, device);
}

struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
};

}  // namespace

// On a thread of its own: a kernel that never ends must not keep the process from ending, and the current context of
// the calling thread stays what it is.
bool wait_for_devices(std::chrono::seconds at_most) {
    const Driver driver = loaded_driver();
    if (!driver.is_there()) return true;
    const auto progress = std::make_shared<Progress>();
    try {
        std::thread([driver, progress] {
            synchronize_all(driver);
            const std::scoped_lock lock(progress->mutex);
            progress->done = true;
            progress->changed.notify_all();
        }).detach();
    } catch (const std::system_error&) {
        return false;
    }
    std::unique_lock lock(progress->mutex);
    return progress->changed.wait_for(lock, at_most, [&] { return progress->done; });
}

}  // namespace stowage::profiler
