#include "cli/gpu/gpu_verbs.hpp"
#include "cli/gpu/gpu_version.hpp"
#include "executor/engine/engine.hpp"
#include "profiler/calibrate/device_bench.hpp"

namespace stowage::cli {
namespace {

class RealGpuVerbs final : public GpuVerbs {
public:
    executor::ExecutionResult execute(const executor::ExecutionRequest& request,
                                      const executor::Progress& progress) override {
        executor::Execution execution(request, progress);
        execution.reach_steady();
        if (request.record)
            execution.record();
        else
            execution.measure();
        return execution.take();
    }
    calibrate::Machine machine() override { return calibrate::make_device_bench()->machine(); }
    calibrate::Measurements measure(const calibrate::CampaignOptions& options,
                                    const executor::Progress& progress) override {
        const auto bench = calibrate::make_device_bench();
        return calibrate::run_campaign(*bench, options, progress);
    }
};

}  // namespace
}  // namespace stowage::cli

extern "C" __attribute__((visibility("default"))) stowage::cli::GpuVerbs* stowage_gpu_verbs() {
    static stowage::cli::RealGpuVerbs verbs;  // no state, no CUDA object
    return &verbs;
}

extern "C" __attribute__((visibility("default"))) int stowage_gpu_version() { return stowage::cli::kGpuVerbsVersion; }
