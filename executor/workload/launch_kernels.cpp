#include "executor/workload/launch_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "executor/workload/kernels/head_norm.hpp"
#include "executor/workload/launch_attention_kernels.hpp"
#include "executor/workload/launch_moe.hpp"
#include "executor/workload/launch_optimizer.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

/// Takes a call's buffers one after the other.
class Operands {
public:
    Operands(std::span<void* const> buffers, std::size_t expected) : buffers_(buffers) {
        STOWAGE_CHECK(buffers.size() == expected, "the operands are not those of the call");
    }
    template <class Value = void>
    Value* next() {
        return static_cast<Value*>(buffers_[taken_++]);
    }
    /// Null where the call has no such operand.
    template <class Value = void>
    Value* next_if(bool there) {
        return there ? next<Value>() : nullptr;
    }

private:
    std::span<void* const> buffers_;
    std::size_t taken_ = 0;
};

struct Launch {
    const CallSizes& sizes;
    std::span<void* const> buffers;
    const kernels::LoadKey& key;
    cudaStream_t stream;

    [[nodiscard]] kernels::Extent extent() const { return {sizes.rows, sizes.columns}; }
    [[nodiscard]] bool fp32() const { return sizes.gradient_type == types::DataType::fp32; }
    [[nodiscard]] Operands operands(std::size_t expected) const { return {buffers, expected}; }
};

/// Rows of the first of so many equal parts.
std::int64_t first_part(const CallSizes& sizes) { return sizes.rows / std::max<std::int64_t>(sizes.depths, 1); }

kernels::LossScales loss_scales(const CallSizes& sizes) {
    return {first_part(sizes), static_cast<float>(sizes.value), static_cast<float>(sizes.later_value)};
}

void load_tokens(const Launch& launch) {
    Operands operands = launch.operands(1);
    const CallSizes& sizes = launch.sizes;
    kernels::TokenPlaces places;
    places.further = std::max<std::int64_t>(sizes.batch, 1);  // the next place of the same sequence
    places.first = sizes.shift ? places.further : 0;
    places.part = first_part(sizes);
    kernels::load_tokens(operands.next<std::int32_t>(), sizes.rows, sizes.columns, places, launch.key, launch.stream);
}

void load_hidden(const Launch& launch) {
    Operands operands = launch.operands(1);
    kernels::load_hidden(operands.next(), launch.sizes.rows * launch.sizes.columns, launch.key, launch.stream);
}

void embedding_forward(const Launch& launch) {
    Operands operands = launch.operands(3);
    const auto* tokens = operands.next<const std::int32_t>();
    const void* table = operands.next();
    kernels::embedding_forward(tokens, table, operands.next(), launch.extent(), launch.sizes.depth, launch.stream);
}

void embedding_backward(const Launch& launch) {
    Operands operands = launch.operands(3);
    const auto* tokens = operands.next<const std::int32_t>();
    const void* dy = operands.next();
    kernels::embedding_backward(tokens, dy, operands.next(), launch.fp32(), launch.extent(), launch.sizes.depth,
                                launch.stream);
}

std::int64_t norm_stride(const CallSizes& sizes) { return sizes.stride > 0 ? sizes.stride : sizes.columns; }

void norm_forward(const Launch& launch) {
    const bool layer_norm = launch.sizes.layer_norm;
    Operands operands = launch.operands(layer_norm ? 6 : 4);
    kernels::NormForward buffers;
    buffers.x = operands.next();
    buffers.weight = operands.next();
    buffers.bias = operands.next_if(layer_norm);
    buffers.y = operands.next();
    buffers.rstd = operands.next<float>();
    buffers.mean = operands.next_if<float>(layer_norm);
    buffers.stride = norm_stride(launch.sizes);
    buffers.epsilon = static_cast<float>(launch.sizes.value);
    buffers.layer_norm = layer_norm;
    kernels::norm_forward(buffers, launch.extent(), launch.stream);
}

void norm_backward(const Launch& launch) {
    const bool layer_norm = launch.sizes.layer_norm;
    Operands operands = launch.operands(7U + (layer_norm ? 2U : 0U) + (launch.sizes.has_addend ? 1U : 0U));
    kernels::NormBackward buffers;
    buffers.x = operands.next();
    buffers.weight = operands.next();
    buffers.rstd = operands.next<float>();
    buffers.mean = operands.next_if<float>(layer_norm);
    buffers.dy = operands.next();
    buffers.residual = operands.next_if(launch.sizes.has_addend);
    buffers.dx = operands.next();
    buffers.weight_gradient = operands.next();
    buffers.bias_gradient = operands.next_if(layer_norm);
    buffers.partials = operands.next<float>();
    buffers.stride = norm_stride(launch.sizes);
    buffers.layer_norm = layer_norm;
    buffers.fp32 = launch.fp32();
    kernels::norm_backward(buffers, launch.extent(), layers::norm_partials(launch.sizes.rows), launch.stream);
}

void bias_gradient(const Launch& launch) {
    Operands operands = launch.operands(3);
    const void* dy = operands.next();
    void* gradient = operands.next();
    kernels::bias_gradient(dy, gradient, launch.fp32(), operands.next<float>(), launch.extent(),
                           layers::norm_partials(launch.sizes.rows), launch.stream);
}

void rotary(const Launch& launch, bool backward) {
    Operands operands = launch.operands(2);
    const CallSizes& sizes = launch.sizes;
    void* packed = operands.next();
    STOWAGE_CHECK(sizes.batch > 0, "rotary embedding needs the batch to know a row's place");
    kernels::rotary(packed, operands.next<const float>(),
                    {sizes.rows, sizes.batch, sizes.heads, sizes.groups, sizes.head_size}, backward, launch.stream);
}

[[nodiscard]] kernels::RotaryShape packed_shape(const CallSizes& sizes) {
    STOWAGE_CHECK(sizes.batch > 0, "rotary embedding needs the batch to know a row's place");
    return {sizes.rows, sizes.batch, sizes.heads, sizes.groups, sizes.head_size};
}

void head_norm_forward(const Launch& launch) {
    Operands operands = launch.operands(launch.sizes.rotary ? 5 : 4);
    kernels::HeadNormForward buffers;
    buffers.packed = operands.next();
    buffers.query_weight = operands.next();
    buffers.key_weight = operands.next();
    buffers.table = operands.next_if<const float>(launch.sizes.rotary);
    buffers.out = operands.next();
    kernels::head_norm_forward(buffers, packed_shape(launch.sizes), static_cast<float>(launch.sizes.value),
                               launch.stream);
}

void head_norm_backward(const Launch& launch) {
    Operands operands = launch.operands(launch.sizes.rotary ? 8 : 7);
    kernels::HeadNormBackward buffers;
    buffers.packed = operands.next();
    buffers.query_weight = operands.next();
    buffers.key_weight = operands.next();
    buffers.table = operands.next_if<const float>(launch.sizes.rotary);
    buffers.gradient = operands.next();
    buffers.query_gradient = operands.next();
    buffers.key_gradient = operands.next();
    buffers.partials = operands.next<float>();
    buffers.fp32 = launch.fp32();
    kernels::head_norm_backward(buffers, packed_shape(launch.sizes), static_cast<float>(launch.sizes.value),
                                layers::norm_partials(launch.sizes.rows), launch.stream);
}

void activation_forward(const Launch& launch) {
    Operands operands = launch.operands(2);
    const void* g = operands.next();
    kernels::activation_forward(g, operands.next(), launch.extent(), launch.sizes.gated, launch.stream);
}

void activation_backward(const Launch& launch) {
    Operands operands = launch.operands(4);
    const void* g = operands.next();
    const void* da = operands.next();
    void* dg = operands.next();
    kernels::activation_backward(g, da, dg, operands.next(), launch.extent(), launch.sizes.gated, launch.stream);
}

void cross_entropy_forward(const Launch& launch) {
    Operands operands = launch.operands(4);
    const void* logits = operands.next();
    const auto* labels = operands.next<const std::int32_t>();
    auto* log_sum_exp = operands.next<float>();
    float* loss = operands.next<float>() + launch.key.microbatch;
    kernels::cross_entropy_forward(logits, labels, log_sum_exp, loss, launch.extent(), loss_scales(launch.sizes),
                                   launch.stream);
}

void cross_entropy_backward(const Launch& launch) {
    Operands operands = launch.operands(3);
    void* logits = operands.next();
    const auto* labels = operands.next<const std::int32_t>();
    kernels::cross_entropy_backward(logits, labels, operands.next<const float>(), launch.extent(),
                                    loss_scales(launch.sizes), launch.stream);
}

void mean_square_forward(const Launch& launch) {
    Operands operands = launch.operands(3);
    const void* y = operands.next();
    float* loss = operands.next<float>() + launch.key.microbatch;
    kernels::mean_square_forward(y, loss, operands.next<float>(), launch.extent(),
                                 layers::norm_partials(launch.sizes.rows), launch.stream);
}

void mean_square_backward(const Launch& launch) {
    Operands operands = launch.operands(2);
    const void* y = operands.next();
    kernels::mean_square_backward(y, operands.next(), launch.sizes.rows * launch.sizes.columns,
                                  static_cast<float>(launch.sizes.value), launch.stream);
}

void clear(const Launch& launch) {
    Operands operands = launch.operands(1);
    // What goes wrong stays as the last error, as after a kernel.
    cudaMemsetAsync(operands.next(), 0, static_cast<std::size_t>(launch.sizes.rows), launch.stream);
}

void copy(const Launch& launch) {
    Operands operands = launch.operands(2);
    const void* source = operands.next();
    cudaMemcpyAsync(operands.next(), source, static_cast<std::size_t>(launch.sizes.rows), cudaMemcpyDefault,
                    launch.stream);
}

/// Whether `columns` counts elements of rows that kernels read 16 bytes at a time.
bool has_vector_rows(Call call) {
    switch (call) {
        case Call::embedding_forward:
        case Call::embedding_backward:
        case Call::norm_forward:
        case Call::norm_backward:
        case Call::bias_gradient:
        case Call::activation_forward:
        case Call::activation_backward:
        case Call::cross_entropy_forward:
        case Call::cross_entropy_backward:
        case Call::mean_square_forward:
        case Call::mean_square_backward: return true;
        default: return false;
    }
}

[[noreturn]] void refuse(Call call, const char* what, std::int64_t value, std::string_view rule) {
    throw types::UnsupportedError(
        fmt::format("{}: {} is {}, but the executor's kernels take {}", layers::name_of(call), what, value, rule));
}

}  // namespace

void require_supported(Call call, const CallSizes& sizes) {
    require_moe_supported(call, sizes);
    require_optimizer_supported(call, sizes);
    require_latent_pack_supported(call, sizes);
    if (sizes.depths > 0 && sizes.rows % sizes.depths != 0) {
        refuse(call, "the number of rows", sizes.rows, fmt::format("{} equal parts", sizes.depths));
    }
    if (has_vector_rows(call) && sizes.columns % kernels::kVector != 0) {
        refuse(call, "the row length", sizes.columns, "multiples of 8");
    }
    const bool norm = call == Call::norm_forward || call == Call::norm_backward;
    if (norm && sizes.stride % kernels::kVector != 0) {
        refuse(call, "the distance of rows", sizes.stride, "multiples of 8");
    }
    if (norm && sizes.columns > kernels::kMostNormColumns) {
        refuse(call, "the row length", sizes.columns, fmt::format("at most {}", kernels::kMostNormColumns));
    }
    const bool rotary = call == Call::rotary_forward || call == Call::rotary_backward;
    if (rotary && sizes.head_size % (2 * kernels::kVector) != 0) {
        refuse(call, "the head size", sizes.head_size, "multiples of 16");
    }
    if (is_attention(call) && sizes.head_size % kernels::kVector != 0) {
        refuse(call, "the head size", sizes.head_size, "multiples of 8");
    }
    if (is_attention(call) && sizes.value_size % kernels::kVector != 0) {
        refuse(call, "the size of values", sizes.value_size, "multiples of 8");
    }
}

void launch_kernel(const CallShape& shape, std::span<void* const> buffers, const kernels::LoadKey& key,
                   cudaStream_t stream) {
    STOWAGE_CHECK(shape.sizes.rows > 0, "a call on nothing");
    if (is_moe(shape.call)) return launch_moe(shape, buffers, stream);
    if (is_latent_pack(shape.call)) return launch_latent_pack(shape, buffers, stream);
    if (is_optimizer(shape.call)) return launch_optimizer(shape, buffers, key.step, stream);
    const Launch launch{shape.sizes, buffers, key, stream};
    switch (shape.call) {
        case Call::load_tokens: return load_tokens(launch);
        case Call::load_hidden: return load_hidden(launch);
        case Call::embedding_forward: return embedding_forward(launch);
        case Call::embedding_backward: return embedding_backward(launch);
        case Call::norm_forward: return norm_forward(launch);
        case Call::norm_backward: return norm_backward(launch);
        case Call::bias_gradient: return bias_gradient(launch);
        case Call::rotary_forward: return rotary(launch, false);
        case Call::rotary_backward: return rotary(launch, true);
        case Call::head_norm_forward: return head_norm_forward(launch);
        case Call::head_norm_backward: return head_norm_backward(launch);
        case Call::activation_forward: return activation_forward(launch);
        case Call::activation_backward: return activation_backward(launch);
        case Call::cross_entropy_forward: return cross_entropy_forward(launch);
        case Call::cross_entropy_backward: return cross_entropy_backward(launch);
        case Call::mean_square_forward: return mean_square_forward(launch);
        case Call::mean_square_backward: return mean_square_backward(launch);
        case Call::clear: return clear(launch);
        case Call::copy: return copy(launch);
        default: break;
    }
    STOWAGE_CHECK(false, "a call that is no kernel of ours");
}

}  // namespace stowage::executor
