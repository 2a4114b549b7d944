#include "profiler/calibrate/fp8_products.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "executor/cuda/event.hpp"
#include "executor/workload/device_memory.hpp"
#include "executor/workload/gemm_library.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using executor::check_cublas;
using executor::CublasRelease;

constexpr int kProposals = 8;
constexpr int kTries = 5;

using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, CublasRelease>;
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, CublasRelease>;
using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, CublasRelease>;

template <class Value>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check_cublas(
        cublasLtMatmulDescSetAttribute(description.get(), attribute, static_cast<const void*>(&value), sizeof value),
        "describing an FP8 product");
}

/// Column by column as the library counts: y' (columns x rows) = weight'^T (columns x depth) x' (depth x rows).
Description describe(const void* one) {
    cublasLtMatmulDesc_t made = nullptr;
    check_cublas(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing an FP8 product");
    Description description(made);
    set(description, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(description, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, one);
    set(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, one);
    set(description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
    return description;
}

Layout layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), rows),
                 "describing an FP8 matrix");
    return Layout(made);
}

struct Product {
    Layout weight;
    Layout x;
    Layout y;
    cublasLtMatmulAlgo_t algorithm{};
};

}  // namespace

struct Fp8Products::State {
    std::int64_t workspace_bytes = 0;
    executor::CublasHandle handle;
    executor::DeviceMemory one;  ///< a scale of 1
    Description description;
    std::map<Fp8Sizes, Product> ready;

    [[nodiscard]] cublasStatus_t launch(const Product& product, const Fp8Buffers& buffers, cudaStream_t stream) const {
        const float alpha = 1.0F;
        const float beta = 0.0F;
        return cublasLtMatmul(handle.get(), description.get(), &alpha, buffers.weight, product.weight.get(), buffers.x,
                              product.x.get(), &beta, buffers.y, product.y.get(), buffers.y, product.y.get(),
                              &product.algorithm, buffers.workspace, static_cast<std::size_t>(workspace_bytes), stream);
    }
    [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> proposals(const Product& product) const;
    /// The shortest of a few calls, in microseconds; infinite if it does not run.
    [[nodiscard]] double shortest(const Product& product, const Fp8Buffers& buffers, cudaStream_t stream) const;
};

std::vector<cublasLtMatmulAlgo_t> Fp8Products::State::proposals(const Product& product) const {
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&made), "asking for FP8 algorithms");
    const Preference preference(made);
    const auto limit = static_cast<std::uint64_t>(workspace_bytes);
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit),
        "asking for FP8 algorithms");
    std::array<cublasLtMatmulHeuristicResult_t, kProposals> results{};
    int count = 0;
    check_cublas(
        cublasLtMatmulAlgoGetHeuristic(handle.get(), description.get(), product.weight.get(), product.x.get(),
                                       product.y.get(), product.y.get(), made, kProposals, results.data(), &count),
        "asking for FP8 algorithms");
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
        if (results.at(static_cast<std::size_t>(i)).state == CUBLAS_STATUS_SUCCESS)
            algorithms.push_back(results.at(static_cast<std::size_t>(i)).algo);
    return algorithms;
}

double Fp8Products::State::shortest(const Product& product, const Fp8Buffers& buffers, cudaStream_t stream) const {
    const executor::Event start(executor::EventTiming::on);
    const executor::Event end(executor::EventTiming::on);
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTries; ++i) {
        start.record(executor::StreamRef(stream));
        if (launch(product, buffers, stream) != CUBLAS_STATUS_SUCCESS) return best;
        end.record(executor::StreamRef(stream));
        end.synchronize();
        if (i > 0) best = std::min(best, types::in_microseconds(executor::elapsed(start.ref(), end.ref())));
    }
    return best;
}

Fp8Products::Fp8Products(std::int64_t workspace_bytes) : state_(std::make_unique<State>()) {
    state_->workspace_bytes = workspace_bytes;
    state_->handle = executor::make_cublas_handle();
    state_->one = executor::allocate_on_device(sizeof(float), "allocating the scale of FP8 products");
    const float one = 1.0F;
    check(cudaMemcpy(state_->one.get(), &one, sizeof one, cudaMemcpyHostToDevice), "writing the scale of FP8 products");
    state_->description = describe(state_->one.get());
}

Fp8Products::Fp8Products(Fp8Products&&) noexcept = default;
Fp8Products& Fp8Products::operator=(Fp8Products&&) noexcept = default;
Fp8Products::~Fp8Products() = default;

void Fp8Products::prepare(const Fp8Sizes& sizes, const Fp8Buffers& buffers, cudaStream_t stream) {
    if (state_->ready.contains(sizes)) return;
    Product product{layout(CUDA_R_8F_E4M3, sizes.depth, sizes.columns),
                    layout(CUDA_R_8F_E4M3, sizes.depth, sizes.rows),
                    layout(CUDA_R_16BF, sizes.columns, sizes.rows),
                    {}};
    double best = std::numeric_limits<double>::infinity();
    cublasLtMatmulAlgo_t chosen{};
    for (const cublasLtMatmulAlgo_t& algorithm : state_->proposals(product)) {
        product.algorithm = algorithm;
        const double time = state_->shortest(product, buffers, stream);
        if (time >= best) continue;
        best = time;
        chosen = algorithm;
    }
    if (best == std::numeric_limits<double>::infinity())
        check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "looking for an algorithm of an FP8 product");
    product.algorithm = chosen;
    state_->ready.emplace(sizes, std::move(product));
}

void Fp8Products::launch(const Fp8Sizes& sizes, const Fp8Buffers& buffers, cudaStream_t stream) {
    const auto found = state_->ready.find(sizes);
    STOWAGE_CHECK(found != state_->ready.end(), "an FP8 product was prepared");
    check_cublas(state_->launch(found->second, buffers, stream), "launching an FP8 product");
}

}  // namespace stowage::calibrate
