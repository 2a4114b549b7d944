#include "executor/workload/gemm.hpp"

#include <fmt/format.h>

#include <map>

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
    GemmProblem problem;
    cublasLtMatmulAlgo_t algorithm;
    std::int64_t workspace_bytes;
};

/// The library must still know the algorithm: raw bytes come from a file.
void check_algorithm(cublasLtContext* handle, const Ready& ready, const GemmKey& key) {
    cublasLtMatmulHeuristicResult_t result{};
    const GemmProblem& problem = ready.problem;
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, problem.description(), problem.a(), problem.b(),
                                                          problem.d(), problem.d(), &ready.algorithm, &result);
    check_cublas(status, fmt::format("checking the table's algorithm for {}", to_string(key)));
}

void require_workspace(const GemmKey& key, std::int64_t needed, std::int64_t given) {
    if (needed <= given) return;
    throw DeviceError(
        fmt::format("the table's algorithm for {} needs {} bytes of workspace, the program gives {}; "
                    "measure a table of its own for this program",
                    to_string(key), needed, given));
}

}  // namespace

struct Gemms::State {
    CublasHandle handle = make_cublas_handle();
    GemmTable table;
    std::map<GemmKey, Ready> ready;
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
    Ready ready{GemmProblem(key), library_algorithm(algorithm), algorithm.workspace_bytes};
    if (!measured) check_algorithm(state_->handle.get(), ready, key);
    state_->ready.emplace(key, std::move(ready));
    return measured;
}

void Gemms::launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers,
                   cudaStream_t stream) {
    const GemmOperands operands = gemm_operands(call, sizes);
    STOWAGE_CHECK(buffers.size() == operands.count(), "operands of a linear layer");
    const auto found = state_->ready.find(gemm_key(call, sizes));
    STOWAGE_CHECK(found != state_->ready.end(), "a matrix product that was not prepared");
    Ready& ready = found->second;
    STOWAGE_CHECK(ready.workspace_bytes <= sizes.workspace_bytes, "a workspace smaller than what was prepared");
    GemmPointers pointers{
        buffers[operands.a],        buffers[operands.b], buffers[operands.c], buffers[operands.d], nullptr,
        buffers[operands.workspace]};
    if (sizes.has_bias && call == layers::Call::linear_forward) ready.problem.set_bias(buffers[operands.bias]);
    check_cublas(ready.problem.launch(state_->handle.get(), ready.algorithm, pointers, ready.workspace_bytes, stream),
                 "launching a matrix product");
}

}  // namespace stowage::executor
