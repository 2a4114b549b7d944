#pragma once

// Launches the kernels of a calibration through the executor's workload, on operands of its own.
//
// Operands. Inputs are random numbers that nothing writes, since power depends on them and results fed back would grow
// without bound; outputs lie apart. Turn by turn a call gets other operands, more of them than the cache holds. What a
// backward needs of its forward (attention's output and statistics, a norm's 1 / rms) is computed once.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <memory>
#include <span>

#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

/// For one device, the one that is current when it is made.
class KernelRunner {
public:
    /// Throws: DeviceError.
    KernelRunner();
    KernelRunner(const KernelRunner&) = delete;
    KernelRunner& operator=(const KernelRunner&) = delete;
    KernelRunner(KernelRunner&&) = delete;
    KernelRunner& operator=(KernelRunner&&) = delete;
    ~KernelRunner();

    /// Throws: DeviceError or types::UnsupportedError if this machine cannot run it.
    void prepare(const KernelCase& kernel);
    /// Throws: std::logic_error if the kernel was not prepared; DeviceError.
    void launch(const KernelCase& kernel, int turn, cudaStream_t stream);
    /// Memory that copies may read and write while kernels run: it holds outputs, which nothing depends on.
    [[nodiscard]] std::byte* scratch() const;
    [[nodiscard]] Bytes scratch_size() const;
    /// Device memory of operands, workspaces and what backwards keep, each allocation in whole steps of 2 MiB.
    [[nodiscard]] Bytes arenas() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace stowage::calibrate
