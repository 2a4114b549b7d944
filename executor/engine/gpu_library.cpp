#include "executor/engine/engine.hpp"
#include "executor/engine/gpu_version.hpp"

namespace stowage::executor {
namespace {

class RealGpuVerbs final : public GpuVerbs {
public:
    ExecutionResult execute(const ExecutionRequest& request, const Progress& progress) override {
        Execution execution(request, progress);
        execution.reach_steady();
        execution.measure();
        return execution.take();
    }
};

}  // namespace
}  // namespace stowage::executor

extern "C" __attribute__((visibility("default"))) stowage::executor::GpuVerbs* stowage_gpu_verbs() {
    static stowage::executor::RealGpuVerbs verbs;  // no state, no CUDA object
    return &verbs;
}

extern "C" __attribute__((visibility("default"))) int stowage_gpu_version() {
    return stowage::executor::kGpuVerbsVersion;
}
