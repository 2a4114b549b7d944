#pragma once

// What the verbs of a GPU ask of libstowage_gpu.so, which alone links CUDA libraries and is opened only when such a
// verb runs.

#include "executor/engine/execution.hpp"
#include "profiler/calibrate/campaign.hpp"

namespace stowage::cli {

class GpuVerbs {
public:
    virtual ~GpuVerbs() = default;
    /// Throws: DeviceError, OutOfMemory and UnsupportedError, with what is needed and what there is.
    virtual executor::ExecutionResult execute(const executor::ExecutionRequest& request,
                                              const executor::Progress& progress) = 0;
    /// The machine, without measuring anything. Throws: DeviceError.
    virtual calibrate::Machine machine() = 0;
    /// Throws: DeviceError. Cost: most of a minute.
    virtual calibrate::Measurements measure(const calibrate::CampaignOptions& options,
                                            const executor::Progress& progress) = 0;
};

/// What the library exports, by this name: `extern "C" GpuVerbs* stowage_gpu_verbs()`; it lives as long as the library.
inline constexpr const char* kGpuVerbsSymbol = "stowage_gpu_verbs";
using GpuVerbsFunction = GpuVerbs* (*)();

}  // namespace stowage::cli
