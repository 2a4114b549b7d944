#pragma once

// Runs Call::stand_in: what the kernels take beside their operands, and their launches.
//
// Tested by: tests/executor/workload/stand_in_gpu_test.cpp.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "executor/workload/device_memory.hpp"
#include "executor/workload/kernels/kernels.hpp"
#include "planner/layers/kernel_call.hpp"

namespace stowage::executor {

/// Memory of the workload's own that stand-ins read where their operands have fewer bytes than their traffic: several
/// times what a device keeps in its cache.
inline constexpr types::Bytes kStandInRing{256LL << 20};

class StandIns {
public:
    /// Takes the memory, once. Throws: DeviceError.
    void prepare();

    /// Throws: std::logic_error for operands that are not those of the call, and if there was no `prepare`. A failed
    /// launch is left as the last error.
    void launch(const layers::StandInWork& work, std::span<void* const> buffers, const kernels::LoadKey& key,
                cudaStream_t stream);

private:
    DeviceMemory ring_;
    DeviceMemory scratch_;
    int multiprocessors_ = 0;
    std::int64_t next_ = 0;  ///< vector of the ring that the next launch begins at
    std::uint64_t launches_ = 0;
};

}  // namespace stowage::executor
