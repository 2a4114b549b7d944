// Stands in for attention.cpp where cuDNN or its frontend was not found when stowage was built.

#include "executor/cuda/device_error.hpp"
#include "executor/workload/attention.hpp"

namespace stowage::executor {

struct Attention::State {};

Attention::Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;
Attention::~Attention() = default;

namespace {

[[noreturn]] void refuse() {
    throw DeviceError(
        "this build of stowage has no attention: cuDNN 9 or its frontend's headers were not found when it was "
        "configured; install cuDNN 9, set STOWAGE_CUDNN_FRONTEND_INCLUDE to the frontend's headers if PyPI cannot be "
        "reached, and configure again");
}

}  // namespace

AttentionWorkspace Attention::prepare(layers::Call /*call*/, const layers::CallSizes& /*sizes*/) { refuse(); }

void Attention::launch(layers::Call /*call*/, const layers::CallSizes& /*sizes*/, std::span<void* const> /*buffers*/,
                       cudaStream_t /*stream*/) {
    refuse();
}

}  // namespace stowage::executor
