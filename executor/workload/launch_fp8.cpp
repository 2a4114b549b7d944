#include "executor/workload/launch_fp8.hpp"

#include <fmt/format.h>

#include "executor/workload/gemm_key.hpp"
#include "executor/workload/kernels/fp8.hpp"
#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

kernels::Fp8Format format_of(const CallSizes& sizes) {
    return sizes.e5m2 ? kernels::Fp8Format::e5m2 : kernels::Fp8Format::e4m3;
}

void expect(std::span<void* const> buffers, std::size_t operands) {
    STOWAGE_CHECK(buffers.size() == operands, "the operands are not those of the call");
}

void fp8_scale(const CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream) {
    expect(buffers, 3);
    kernels::fp8_scale(buffers[0], format_of(sizes), static_cast<float*>(buffers[1]), static_cast<float*>(buffers[2]),
                       {sizes.rows, sizes.columns}, layers::norm_partials(sizes.rows), stream);
}

void fp8_quantize(const CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream) {
    STOWAGE_CHECK(sizes.plain || sizes.transposed, "rounding to FP8 that writes nothing");
    expect(buffers, sizes.plain && sizes.transposed ? 4 : 3);
    void* const plain = sizes.plain ? buffers[2] : nullptr;
    void* const transposed = sizes.transposed ? buffers.back() : nullptr;
    kernels::fp8_quantize(buffers[0], static_cast<const float*>(buffers[1]), format_of(sizes), plain, transposed,
                          {sizes.rows, sizes.columns}, stream);
}

void require_multiple(Call call, const char* what, std::int64_t size) {
    if (size % layers::kFp8Multiple == 0) return;
    throw types::UnsupportedError(fmt::format("{}: {} is {}, but FP8 takes multiples of {}", layers::name_of(call),
                                              what, size, layers::kFp8Multiple));
}

}  // namespace

bool is_fp8_conversion(Call call) { return call == Call::fp8_scale || call == Call::fp8_quantize; }

void require_fp8_supported(Call call, const CallSizes& sizes) {
    if (!is_fp8_conversion(call) && !is_fp8_gemm(call)) return;
    require_multiple(call, "the number of rows", sizes.rows);
    require_multiple(call, "the number of columns", sizes.columns);
    require_multiple(call, "the depth", sizes.depth);  // conversions have none
}

void launch_fp8(const CallShape& shape, std::span<void* const> buffers, cudaStream_t stream) {
    if (shape.call == Call::fp8_scale) return fp8_scale(shape.sizes, buffers, stream);
    STOWAGE_CHECK(shape.call == Call::fp8_quantize, "a call that turns nothing into FP8");
    fp8_quantize(shape.sizes, buffers, stream);
}

}  // namespace stowage::executor
