#pragma once

// What a campaign of measurements asks of a machine: one block of one kind at a time. The real one drives a GPU
// (device_bench.hpp); that of the tests is a model with known constants, noise and outliers.
//
// Tested by: tests/profiler/calibrate/campaign_test.cpp (the fake), calibration_gpu_test.cpp (the real one).

#include <span>

#include "profiler/calibrate/measurements.hpp"

namespace stowage::calibrate {

/// A kernel that this machine cannot run, and why.
struct Refusal {
    KernelCase kernel;
    std::string reason;
};
struct Prepared {
    MemoryUse memory;
    std::vector<Refusal> refused;
};

/// Throws, everywhere: DeviceError (executor/cuda/device_error.hpp) with what failed and what to do.
class Bench {
public:
    virtual ~Bench() = default;

    virtual Machine machine() = 0;
    /// Makes every kernel ready to run: algorithms, plans, memory. Those that it cannot run are not asked for later.
    virtual Prepared prepare(std::span<const KernelCase> kernels) = 0;

    /// Back-to-back calls for about so long, on operands that do not stay in the cache.
    virtual Block run(const KernelCase& kernel, double milliseconds) = 0;
    /// Calls all kernels in turn, again and again for about so long, with the device working for `duty` of the time.
    virtual std::vector<MixRound> run_mix(std::span<const KernelCase> kernels, double duty, double seconds) = 0;
    /// As `run`, beside copies of 16 MiB that begin with the block and last longer. Takes the same time whatever runs
    /// beside it, so that blocks that follow one another have the same duty cycle.
    virtual BesideBlock run_beside(const KernelCase& kernel, double milliseconds, Beside beside) = 0;

    /// Microseconds of one of several copies, one after the other on one stream, alone.
    virtual double copy(const CopyCase& copy) = 0;
    virtual DuplexRound copy_both(Bytes size) = 0;
    /// All visible devices at once; only with several.
    virtual SharedCopies copy_on_all(CopyDirection direction, Bytes size) = 0;

    /// Host microseconds of one call, the mean of a batch of them on an idle device.
    virtual double host_call(HostCall call) = 0;
    virtual std::int64_t launch_queue_depth() = 0;
    /// Of one cudaHostAlloc with first touch.
    virtual double pinned_allocation_us_per_gib() = 0;
    virtual double launch_graph(const GraphShape& shape) = 0;
    /// Makes so many graphs and keeps all that were made so until the bench goes.
    virtual GraphStock stock_graphs(const GraphShape& shape, int graphs) = 0;
    /// Device microseconds from the first kernel's start to the last one's end.
    virtual double empty_kernels(int kernels, bool in_graph) = 0;

    /// A clock that goes on, for the time that phases take.
    virtual double seconds() = 0;
};

}  // namespace stowage::calibrate
