#include "profiler/cupti/expect.hpp"

#include <fmt/format.h>

#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {
namespace {

/// What is likely, and what to do.
const char* advice(CUptiResult result) {
    switch (result) {
        case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
        case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
            return "this user may not profile on this machine: run as root (in a container: with --cap-add=SYS_ADMIN), "
                   "or have the driver loaded with the option NVreg_RestrictProfilingToAdminUsers=0";
        case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
        case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
        case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
        case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
        case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
            return "the device runs in a mode that CUPTI cannot record in: use a whole device outside of it";
        case CUPTI_ERROR_NOT_INITIALIZED:
            return "the driver was not found, is older than CUDA 13, or is already being unloaded: nvidia-smi says "
                   "which "
                   "one is there";
        case CUPTI_ERROR_OUT_OF_MEMORY: return "CUPTI found no memory for its buffers: leave some of the device free";
        default:
            return "another profiler in this process may hold CUPTI, which serves one at a time: run without Nsight, "
                   "compute-sanitizer, cuda-gdb or torch.profiler";
    }
}

}  // namespace

void expect(CuptiApi& cupti, CUptiResult result, const char* call) {
    if (result == CUPTI_SUCCESS) return;
    throw CuptiError(fmt::format("{} failed: {} (CUPTI error {}); {}", call, cupti.result_text(result),
                                 static_cast<int>(result), advice(result)));
}

}  // namespace stowage::profiler
