#pragma once

#include <chrono>

namespace stowage::profiler {

/// Waits until the devices that this process uses through the runtime are idle, with the process's own driver.
/// Result: no if they are not by then; the waiting goes on on a thread of its own, until the process ends.
bool wait_for_devices(std::chrono::seconds at_most);

}  // namespace stowage::profiler
