#include "executor/workload/gemm.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <vector>

#include "executor/cuda/check.hpp"
#include "executor/workload/gemm_library.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

GemmPlatform platform_here() {
    int device = 0;
    check(cudaGetDevice(&device), "asking which device is current");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "asking for the device's name");
    return {&properties.name[0], cublasLtGetVersion()};
}

struct Ready {
    GemmKey key;
    GemmProblem problem;
    cublasLtMatmulAlgo_t algorithm;
    std::int64_t workspace_bytes;
    std::int64_t launches;  ///< one, or one for each expert
};

Ready make_ready(const GemmKey& key, const GemmAlgorithm& algorithm) {
    return {key, GemmProblem(algorithm.one_by_one ? of_one_expert(key) : key), library_algorithm(algorithm),
            algorithm.workspace_bytes, algorithm.one_by_one ? key.experts : 1};
}

/// The library must still know the algorithm: raw bytes come from a file.
void check_algorithm(cublasLtContext* handle, const Ready& ready) {
    cublasLtMatmulHeuristicResult_t result{};
    const GemmProblem& problem = ready.problem;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, problem.description(), problem.a(), problem.b(),
                                                          problem.d(), problem.d(), &ready.algorithm, &result);
    check_cublas(status, fmt::format("checking the table's algorithm for {}", to_string(ready.key)));
}

void require_workspace(const GemmKey& key, std::int64_t needed, std::int64_t given) {
    if (needed <= given) return;
    throw DeviceError(
        fmt::format("the table's algorithm for {} needs {} bytes of workspace, the program gives {}; "
                    "measure a table of its own for this program",
                    to_string(key), needed, given));
}

/// The matrices of an expert whose first row is `row`.
GemmPointers of_rows(layers::Call call, const layers::CallSizes& sizes, const GemmPointers& first, std::int64_t row,
                     std::int64_t expert) {
    const auto behind = [](const void* matrix, std::int64_t elements, types::DataType type) {
        return static_cast<const std::byte*>(matrix) + elements * types::size_of(type);
    };
    const std::int64_t weights = expert * sizes.columns * sizes.depth;
    std::int64_t a = weights;
    std::int64_t b = row * sizes.columns;  // dy
    std::int64_t d = row * sizes.depth;
    types::DataType output = types::DataType::bf16;
    if (call == layers::Call::grouped_linear_forward) {
        b = row * sizes.depth;
        d = row * sizes.columns;
        if (sizes.fp32_result) output = types::DataType::fp32;
    }
    if (call == layers::Call::grouped_linear_weight_gradient) {
        a = row * sizes.depth;
        d = weights;
        output = sizes.gradient_type;
    }
    GemmPointers pointers = first;
    pointers.a = behind(first.a, a, types::DataType::bf16);
    pointers.b = behind(first.b, b, types::DataType::bf16);
    pointers.d = static_cast<std::byte*>(first.d) + d * types::size_of(output);
    pointers.c = pointers.d;  // grouped layers add to nothing else
    return pointers;
}

}  // namespace

struct Gemms::State {
    CublasHandle handle = make_cublas_handle();
    GemmTable table;
    std::map<GemmKey, Ready> ready;

    Ready& ready_for(const GemmKey& key, std::int64_t workspace_bytes) {
        const auto found = ready.find(key);
        STOWAGE_CHECK(found != ready.end(), "a matrix product that was not prepared");
        STOWAGE_CHECK(found->second.workspace_bytes <= workspace_bytes, "a workspace smaller than what was prepared");
        return found->second;
    }
    void launch(const Ready& product, const GemmPointers& first, cudaStream_t stream) const {
        for (std::int64_t expert = 0; expert < product.launches; ++expert) {
            const GemmPointers pointers = of_expert(product.key, first, expert);
            check_cublas(
                product.problem.launch(handle.get(), product.algorithm, pointers, product.workspace_bytes, stream),
                "launching a matrix product");
        }
    }
    void launch_uneven(layers::Call call, const layers::CallSizes& sizes, const GemmPointers& first,
                       cudaStream_t stream);
};

Gemms::Gemms() : state_(std::make_unique<State>()) { state_->table.platform = platform_here(); }
Gemms::Gemms(Gemms&&) noexcept = default;
Gemms& Gemms::operator=(Gemms&&) noexcept = default;
Gemms::~Gemms() = default;

const GemmTable& Gemms::table() const { return state_->table; }

void Gemms::use_table(const GemmTable& table, const std::string& name) {
    require_same_platform(table, state_->table.platform, name);
    state_->table = table;
    state_->ready.clear();
}

bool Gemms::prepare(const GemmKey& key, std::int64_t workspace_bytes) {
    STOWAGE_CHECK(key.output == types::DataType::bf16 || key.output == types::DataType::fp32,
                  "products are written in bf16 or fp32");
    auto entry = state_->table.entries.find(key);
    const bool measured = entry == state_->table.entries.end();
    if (measured) {
        const GemmAlgorithm chosen = choose_algorithm(state_->handle.get(), key, workspace_bytes);
        entry = state_->table.entries.emplace(key, chosen).first;
    }
    const GemmAlgorithm& algorithm = entry->second;
    require_workspace(key, algorithm.workspace_bytes, workspace_bytes);
    if (state_->ready.contains(key)) return measured;
    Ready ready = make_ready(key, algorithm);
    if (!measured) check_algorithm(state_->handle.get(), ready);
    state_->ready.emplace(key, std::move(ready));
    return measured;
}

/// Experts with different rows, one after the other. Matrices of rows move on by an expert's rows, weights by a matrix.
void Gemms::State::launch_uneven(layers::Call call, const layers::CallSizes& sizes, const GemmPointers& first,
                                 cudaStream_t stream) {
    const std::vector<GemmKey> keys = gemm_keys(call, sizes);
    const Ready& more = ready_for(keys.back(), sizes.workspace_bytes);
    const Ready* fewer = keys.size() > 1 ? &ready_for(keys.front(), sizes.workspace_bytes) : nullptr;
    for (std::int64_t expert = 0; expert < sizes.experts; ++expert) {
        const std::int64_t begin = layers::rows_before(expert, sizes.rows, sizes.experts);
        const std::int64_t rows = layers::rows_before(expert + 1, sizes.rows, sizes.experts) - begin;
        const bool has_more = rows > sizes.rows / sizes.experts;
        if (!has_more && fewer == nullptr) continue;  // no row
        launch(has_more ? more : *fewer, of_rows(call, sizes, first, begin, expert), stream);
    }
}

void Gemms::launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers,
                   cudaStream_t stream) {
    const GemmOperands operands = gemm_operands(call, sizes);
    STOWAGE_CHECK(buffers.size() == operands.count(), "operands of a linear layer");
    const GemmPointers pointers{
        buffers[operands.a],        buffers[operands.b], buffers[operands.c], buffers[operands.d], nullptr,
        buffers[operands.workspace]};
    if (is_grouped_gemm(call) && sizes.rows % sizes.experts != 0) {
        return state_->launch_uneven(call, sizes, pointers, stream);
    }
    Ready& ready = state_->ready_for(gemm_key(call, sizes), sizes.workspace_bytes);
    if (operands.bias != GemmOperands::kNone) ready.problem.set_bias(buffers[operands.bias]);
    if (operands.a_scales != GemmOperands::kNone)
        ready.problem.set_scales(static_cast<const float*>(buffers[operands.a_scales]),
                                 static_cast<const float*>(buffers[operands.b_scales]));
    state_->launch(ready, pointers, stream);
}

}  // namespace stowage::executor
