#include "executor/workload/launch_attention_kernels.hpp"

#include <fmt/format.h>

#include "executor/workload/kernels/latent_pack.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

kernels::LatentShape latent_shape(const CallSizes& sizes) {
    STOWAGE_CHECK(sizes.batch > 0, "rotary embedding needs the batch to know a row's place");
    return {sizes.rows, sizes.batch, sizes.heads, sizes.head_size, sizes.value_size, sizes.rope_size, sizes.stride};
}

}  // namespace

bool is_latent_pack(Call call) { return call == Call::latent_pack_forward || call == Call::latent_pack_backward; }

void require_latent_pack_supported(Call call, const CallSizes& sizes) {
    if (!is_latent_pack(call)) return;
    const bool even = sizes.head_size % kernels::kVector == 0 && sizes.value_size % kernels::kVector == 0 &&
                      sizes.stride % kernels::kVector == 0;
    const bool rope = sizes.rope_size > 0 && sizes.rope_size % (2 * kernels::kVector) == 0 &&
                      sizes.rope_size <= kernels::kMostRopeColumns && sizes.rope_size <= sizes.head_size &&
                      sizes.rope_size <= sizes.stride;
    if (even && rope && sizes.value_size > 0) return;
    throw types::UnsupportedError(fmt::format(
        "{}: heads of {} with {} turned, values of {}, rows of {}: the executor's kernels take multiples of "
        "8, and of 16 up to {} where columns are turned",
        layers::name_of(call), sizes.head_size, sizes.rope_size, sizes.value_size, sizes.stride,
        kernels::kMostRopeColumns));
}

void launch_latent_pack(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream) {
    STOWAGE_CHECK(is_latent_pack(shape.call), "a call that is none of multi-latent attention's");
    STOWAGE_CHECK(buffers.size() == 5, "the operands are not those of the call");
    if (shape.call == Call::latent_pack_forward) {
        const kernels::LatentPack pack{buffers[0], buffers[1], buffers[2], static_cast<const float*>(buffers[3]),
                                       buffers[4]};
        return kernels::latent_pack_forward(pack, latent_shape(shape.sizes), stream);
    }
    const kernels::LatentUnpack unpack{buffers[0], static_cast<const float*>(buffers[1]), buffers[2], buffers[3],
                                       buffers[4]};
    kernels::latent_pack_backward(unpack, latent_shape(shape.sizes), stream);
}

}  // namespace stowage::executor
