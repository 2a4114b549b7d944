#include "profiler/injection/wait_for_devices.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "profiler/injection/driver.hpp"

namespace stowage::profiler {
namespace {

void synchronize(const Driver& driver, CUdevice device) {
    CUcontext context = nullptr;
    if (driver.retain(&context, device) != CUDA_SUCCESS) return;
    if (driver.set_current(context) == CUDA_SUCCESS) static_cast<void>(driver.synchronize());
    static_cast<void>(driver.set_current(nullptr));
    static_cast<void>(driver.release(device));
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
    const std::optional<Driver> driver = loaded_driver();
    if (!driver) return true;
    const auto progress = std::make_shared<Progress>();
    try {
        std::thread([driver, progress] {
            for (const CUdevice device : driver->used()) synchronize(*driver, device);
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
