#include "executor/workload/gemm_library.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "executor/cuda/check.hpp"

namespace stowage::executor {
namespace {

using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease>;

Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    cublasLtMatrixLayout_t layout = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), leading),
                 "describing a matrix");
    return Layout(layout);
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(description, attribute, static_cast<const void*>(&value), sizeof value),
                 "describing a matrix product");
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
    const auto output = key.output == types::DataType::fp32 ? CUDA_R_32F : CUDA_R_16BF;
    a_ = key.transpose_a ? make_layout(CUDA_R_16BF, key.k, key.m, key.lda)
                         : make_layout(CUDA_R_16BF, key.m, key.k, key.lda);
    b_ = key.transpose_b ? make_layout(CUDA_R_16BF, key.n, key.k, key.ldb)
                         : make_layout(CUDA_R_16BF, key.k, key.n, key.ldb);
    d_ = make_layout(output, key.m, key.n, key.ldd);
}

void GemmProblem::set_bias(const void* bias) { set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

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
