#include "executor/workload/gemm_library.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "executor/cuda/check.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease>;

/// Matrices of a batch lie one behind the other.
Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                   std::int64_t batch) {
    cublasLtMatrixLayout_t layout = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), leading),
                 "describing a matrix");
    Layout result(layout);
    if (batch == 1) return result;
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t stride = leading * columns;
    check_cublas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                 "describing a batch of matrices");
    check_cublas(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "describing a batch of matrices");
    return result;
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(description, attribute, static_cast<const void*>(&value), sizeof value),
                 "describing a matrix product");
}

cudaDataType_t first_factor(GemmFactors factors) { return factors == GemmFactors::bf16 ? CUDA_R_16BF : CUDA_R_8F_E4M3; }
cudaDataType_t second_factor(GemmFactors factors) {
    return factors == GemmFactors::e4m3_and_e5m2 ? CUDA_R_8F_E5M2 : first_factor(factors);
}

}  // namespace

void check_cublas(cublasStatus_t status, std::string_view doing, std::source_location where) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw DeviceError(fmt::format("cuBLASLt {}: {}, while {}, on {} ({}:{})", cublasLtGetVersion(),
                                  cublasLtGetStatusString(status), doing, current_device_text(), where.file_name(),
                                  where.line()));
}

CublasHandle make_cublas_handle() {
    cublasLtHandle_t handle = nullptr;
    check_cublas(cublasLtCreate(&handle), "starting the GEMM library");
    return CublasHandle(handle);
}

GemmPointers of_expert(const GemmKey& key, const GemmPointers& first, std::int64_t expert) {
    const auto behind = [&](const void* matrix, std::int64_t elements, types::DataType type) {
        return static_cast<const std::byte*>(matrix) + expert * elements * types::size_of(type);
    };
    if (key.experts == 1) return first;
    STOWAGE_CHECK(key.factors == GemmFactors::bf16, "experts in FP8");
    GemmPointers pointers = first;
    pointers.a = behind(first.a, key.m * key.k, types::DataType::bf16);
    pointers.b = behind(first.b, key.k * key.n, types::DataType::bf16);
    pointers.c = behind(first.c, key.m * key.n, key.output);
    pointers.d = static_cast<std::byte*>(first.d) + expert * key.m * key.n * types::size_of(key.output);
    return pointers;
}

GemmProblem::GemmProblem(const GemmKey& key) : add_(key.add) {
    cublasLtMatmulDesc_t description = nullptr;
    check_cublas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a matrix product");
    description_.reset(description);
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (key.bias) {
        set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
        set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    }
    // Forward products in FP8 may leave their sums in the tensor cores for longer, gradients not: Transformer Engine's
    // choice for this recipe.
    if (key.factors == GemmFactors::e4m3) set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    const auto output = key.output == types::DataType::fp32 ? CUDA_R_32F : CUDA_R_16BF;
    const cudaDataType_t first = first_factor(key.factors);
    const cudaDataType_t second = second_factor(key.factors);
    a_ = key.transpose_a ? make_layout(first, key.k, key.m, key.lda, key.experts)
                         : make_layout(first, key.m, key.k, key.lda, key.experts);
    b_ = key.transpose_b ? make_layout(second, key.n, key.k, key.ldb, key.experts)
                         : make_layout(second, key.k, key.n, key.ldb, key.experts);
    d_ = make_layout(output, key.m, key.n, key.ldd, key.experts);
}

void GemmProblem::set_bias(const void* bias) { set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

void GemmProblem::set_scales(const float* a, const float* b) {
    set(description_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a);
    set(description_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b);
}

cublasStatus_t GemmProblem::launch(cublasLtContext* handle, const cublasLtMatmulAlgo_t& algorithm,
                                   const GemmPointers& pointers, std::int64_t workspace_bytes,
                                   cudaStream_t stream) const {
    const float alpha = 1.0F;
    const float beta = add_ ? 1.0F : 0.0F;
    return cublasLtMatmul(handle, description_.get(), &alpha, pointers.a, a_.get(), pointers.b, b_.get(), &beta,
                          pointers.c, d_.get(), pointers.d, d_.get(), &algorithm, pointers.workspace,
                          static_cast<std::size_t>(workspace_bytes), stream);
}

cublasLtMatmulAlgo_t library_algorithm(const GemmAlgorithm& algorithm) {
    cublasLtMatmulAlgo_t result{};
    static_assert(sizeof result.data == sizeof algorithm.raw);
    std::memcpy(&result.data[0], algorithm.raw.data(), sizeof algorithm.raw);
    return result;
}

}  // namespace stowage::executor
