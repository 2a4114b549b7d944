#include "executor/workload/launch_optimizer.hpp"

#include <fmt/format.h>

#include "executor/workload/kernels/kernels.hpp"
#include "executor/workload/kernels/optimizer.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

bool has_fp32_gradient(const CallSizes& sizes) { return sizes.gradient_type == types::DataType::fp32; }

void expect(std::span<void* const> buffers, std::size_t operands) {
    STOWAGE_CHECK(buffers.size() == operands, "the operands are not those of the call");
}

void gradient_norm(const CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream) {
    expect(buffers, 3);
    kernels::gradient_norm(buffers[0], has_fp32_gradient(sizes), static_cast<float*>(buffers[1]),
                           static_cast<float*>(buffers[2]), sizes.rows, layers::norm_partials(sizes.rows),
                           static_cast<float>(sizes.value), stream);
}

void adam_update(const CallSizes& sizes, std::span<void* const> buffers, const std::uint64_t* step,
                 cudaStream_t stream) {
    expect(buffers, 6);
    kernels::AdamBuffers adam;
    adam.gradient = buffers[0];
    adam.norm = static_cast<const float*>(buffers[1]);
    adam.master = static_cast<float*>(buffers[2]);
    adam.first = static_cast<float*>(buffers[3]);
    adam.second = static_cast<float*>(buffers[4]);
    adam.parameters = buffers[5];
    kernels::adam_update(adam, has_fp32_gradient(sizes), sizes.rows, step, {}, stream);
}

}  // namespace

bool is_optimizer(Call call) { return call == Call::gradient_norm || call == Call::adam_update; }

void require_optimizer_supported(Call call, const CallSizes& sizes) {
    if (!is_optimizer(call) || sizes.rows % kernels::kVector == 0) return;
    throw types::UnsupportedError(fmt::format("{}: the length is {}, but the executor's kernels take multiples of 8",
                                              layers::name_of(call), sizes.rows));
}

void launch_optimizer(const CallShape& shape, std::span<void* const> buffers, const std::uint64_t* step,
                      cudaStream_t stream) {
    switch (shape.call) {
        case Call::gradient_norm: return gradient_norm(shape.sizes, buffers, stream);
        case Call::adam_update: return adam_update(shape.sizes, buffers, step, stream);
        default: break;
    }
    STOWAGE_CHECK(false, "a call that is none of the optimizer's");
}

}  // namespace stowage::executor
