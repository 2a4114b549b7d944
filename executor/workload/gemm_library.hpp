#pragma once

// Owners of what cuBLASLt hands out. Included by the two files that speak to it.

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string_view>

#include "executor/workload/gemm_key.hpp"
#include "executor/workload/gemm_table.hpp"

namespace stowage::executor {

/// Throws: DeviceError unless `status` is a success.
void check_cublas(cublasStatus_t status, std::string_view doing,
                  std::source_location where = std::source_location::current());

struct CublasRelease {
    void operator()(cublasLtContext* handle) const noexcept { cublasLtDestroy(handle); }
    void operator()(cublasLtMatmulDescOpaque_t* desc) const noexcept { cublasLtMatmulDescDestroy(desc); }
    void operator()(cublasLtMatrixLayoutOpaque_t* layout) const noexcept { cublasLtMatrixLayoutDestroy(layout); }
    void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const noexcept {
        cublasLtMatmulPreferenceDestroy(preference);
    }
};
using CublasHandle = std::unique_ptr<cublasLtContext, CublasRelease>;

/// Throws: DeviceError.
CublasHandle make_cublas_handle();

/// Where the matrices of a product are, of several experts the first's; alignment 16 bytes. C may be D.
struct GemmPointers {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* c = nullptr;
    void* d = nullptr;
    const void* bias = nullptr;
    void* workspace = nullptr;
};

/// The matrices of the `expert`-th product of a key.
GemmPointers of_expert(const GemmKey& key, const GemmPointers& first, std::int64_t expert);

/// The library's description of one key, a batch of products where it has several experts.
class GemmProblem {
public:
    /// Throws: DeviceError.
    explicit GemmProblem(const GemmKey& key);
    void set_bias(const void* bias);
    /// On the device; of FP8 factors.
    void set_scales(const float* a, const float* b);
    /// The library's answer: whether it could be launched.
    cublasStatus_t launch(cublasLtContext* handle, const cublasLtMatmulAlgo_t& algorithm, const GemmPointers& pointers,
                          std::int64_t workspace_bytes, cudaStream_t stream) const;

    [[nodiscard]] cublasLtMatmulDesc_t description() const { return description_.get(); }
    [[nodiscard]] cublasLtMatrixLayout_t a() const { return a_.get(); }
    [[nodiscard]] cublasLtMatrixLayout_t b() const { return b_.get(); }
    [[nodiscard]] cublasLtMatrixLayout_t d() const { return d_.get(); }

private:
    std::unique_ptr<cublasLtMatmulDescOpaque_t, CublasRelease> description_;
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease> a_;
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease> b_;
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease> d_;
    bool add_ = false;
};

cublasLtMatmulAlgo_t library_algorithm(const GemmAlgorithm& algorithm);

/// Measures what the library proposes within `workspace_bytes` and returns the fastest that gives the same bits every
/// time. Allocates the product's matrices on the current device while it measures.
/// Cost: some 300 products. Throws: DeviceError, also if no proposal is repeatable.
GemmAlgorithm choose_algorithm(cublasLtContext* handle, const GemmKey& key, std::int64_t workspace_bytes);

}  // namespace stowage::executor
