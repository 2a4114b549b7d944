#pragma once

// What calls cost the host, on an idle device.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <span>

#include "executor/cuda/event.hpp"
#include "profiler/calibrate/kernel_runner.hpp"

namespace stowage::calibrate {

/// Kernels whose calls are timed: so small that the host is what takes time.
std::vector<KernelCase> host_call_kernels();

class HostMeter {
public:
    /// `pinned` holds at least a MiB, as does the runner's scratch. Throws: DeviceError.
    HostMeter(KernelRunner& runner, void* pinned) : runner_(runner), pinned_(pinned) {}

    /// As Bench says. Throws: DeviceError; std::logic_error for a kernel that was not prepared.
    double call(HostCall call);
    [[nodiscard]] std::int64_t launch_queue_depth() const;
    static double pinned_allocation_us_per_gib();

private:
    template <class Work>
    double each(int count, const Work& work);
    double kernel(HostCall call);
    double allocate(Bytes size) const;

    KernelRunner& runner_;
    void* pinned_;
    executor::Stream stream_;
    executor::Event event_;
};

}  // namespace stowage::calibrate
