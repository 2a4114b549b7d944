#pragma once

// The bench that is a GPU: the current machine's first visible device.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <memory>

#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

/// Cost: a context, 4.5 GiB of device memory and 2 GiB of pinned memory once `prepare` is called.
/// Throws: DeviceError if there is no usable device.
std::unique_ptr<Bench> make_device_bench();

}  // namespace stowage::calibrate
