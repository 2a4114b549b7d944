// Chooses the algorithm of a matrix product by measuring the library's proposals on matrices of the real shape. The
// chip's clocks move while it works, so what is compared is interleaved, and the median of several rounds counts. A
// proposal that reduces with a scheme whose order is not fixed is not asked for; the winner must also show that it
// gives the same bits three times over.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "executor/cuda/check.hpp"
#include "executor/cuda/event.hpp"
#include "executor/cuda/stream.hpp"
#include "executor/workload/device_memory.hpp"
#include "executor/workload/gemm_library.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "executor/workload/kernels/fp8.hpp"
#include "executor/workload/kernels/kernels.hpp"

namespace stowage::executor {
namespace {

constexpr int kProposals = 32;
constexpr int kRounds = 7;
constexpr double kWorthMeasuring = 1.25;  // of the fastest first try
constexpr std::uint32_t kAlignment = 16;

struct Candidate {
    cublasLtMatmulAlgo_t algorithm{};
    std::int64_t workspace_bytes = 0;
    bool one_by_one = false;  ///< a launch for each expert
    double median_us = 0;
};

/// The matrices, filled with the numbers that hidden states have, since power depends on them.
class Bench {
public:
    Bench(cublasLtContext* handle, const GemmKey& key, std::int64_t workspace_bytes)
        : handle_(handle),
          key_(key),
          problem_(key),
          problem_of_one_(of_one_expert(key)),
          a_(allocate(factor_bytes(key) * key.m * key.k * key.experts)),
          b_(allocate(factor_bytes(key) * key.k * key.n * key.experts)),
          d_bytes_(types::size_of(key.output) * key.m * key.n * key.experts),
          c_(allocate(key.add ? d_bytes_ : 0)),
          d_(allocate(d_bytes_)),
          bias_(allocate(2 * key.m)),
          workspace_(allocate(workspace_bytes)),
          digest_(allocate(sizeof(std::uint64_t))),
          step_(allocate(sizeof(std::uint64_t))),
          scales_(allocate(kScales * static_cast<std::int64_t>(sizeof(float)))) {
        fill_factors();
        fill(bias_, key.m, 3);
        check(cudaMemsetAsync(c_.get(), 0, static_cast<std::size_t>(key.add ? d_bytes_ : 0), stream_.get()),
              "clearing a matrix");
        if (key.bias) problem_.set_bias(bias_.get());
    }

    [[nodiscard]] const GemmProblem& problem() const { return problem_; }
    [[nodiscard]] const GemmProblem& problem_of_one() const { return problem_of_one_; }

    bool launch(const Candidate& candidate) {
        const GemmPointers first{a_.get(), b_.get(), c_.get(), d_.get(), bias_.get(), workspace_.get()};
        const GemmProblem& problem = candidate.one_by_one ? problem_of_one_ : problem_;
        const std::int64_t launches = candidate.one_by_one ? key_.experts : 1;
        bool done = true;
        for (std::int64_t expert = 0; expert < launches && done; ++expert) {
            const GemmPointers pointers = of_expert(key_, first, expert);
            done = problem.launch(handle_, candidate.algorithm, pointers, candidate.workspace_bytes, stream_.get()) ==
                   CUBLAS_STATUS_SUCCESS;
        }
        return done;
    }
    /// Launches each once and then reads the times, so that the device stays under load. In microseconds.
    std::vector<double> times_of(const std::vector<Candidate>& candidates) {
        while (starts_.size() < candidates.size()) {
            starts_.emplace_back(EventTiming::on);
            ends_.emplace_back(EventTiming::on);
        }
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            starts_[i].record(stream_.ref());
            launch(candidates[i]);
            ends_[i].record(stream_.ref());
        }
        stream_.synchronize("measuring matrix products");
        std::vector<double> times;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            times.push_back(static_cast<double>(elapsed(starts_[i].ref(), ends_[i].ref()).count()) / 1e3);
        }
        return times;
    }
    /// Of the product, computed into a matrix that held something else.
    std::uint64_t digest(const Candidate& candidate, int pattern) {
        check(cudaMemsetAsync(d_.get(), pattern, static_cast<std::size_t>(d_bytes_), stream_.get()),
              "clearing a matrix");
        launch(candidate);
        auto* on_device = static_cast<std::uint64_t*>(digest_.get());
        kernels::digest(d_.get(), d_bytes_, on_device, stream_.get());
        std::uint64_t result = 0;
        check(cudaMemcpyAsync(&result, on_device, sizeof result, cudaMemcpyDeviceToHost, stream_.get()),
              "reading a digest");
        stream_.synchronize("waiting for a matrix product");
        return result;
    }

private:
    static constexpr std::int64_t kScales = 2 * 64;  // each factor's on 256 bytes

    static DeviceMemory allocate(std::int64_t bytes) {
        return allocate_on_device(bytes, fmt::format("allocating {} bytes to measure a matrix product", bytes));
    }
    void fill(const DeviceMemory& memory, std::int64_t count, std::uint64_t seed) {
        auto* step = static_cast<std::uint64_t*>(step_.get());
        kernels::set_step(step, 0, stream_.get());
        kernels::load_hidden(memory.get(), count, {seed, step, 0}, stream_.get());
        check(cudaGetLastError(), "filling a matrix");
    }

    void fill_factors() {
        const std::int64_t rows_of_a = key_.m * key_.experts;
        const std::int64_t rows_of_b = key_.n * key_.experts;
        if (key_.factors == GemmFactors::bf16) {
            fill(a_, rows_of_a * key_.k, 1);
            fill(b_, rows_of_b * key_.k, 2);
            return;
        }
        auto* scales = static_cast<float*>(scales_.get());
        const auto second = key_.factors == GemmFactors::e4m3 ? kernels::Fp8Format::e4m3 : kernels::Fp8Format::e5m2;
        fill_fp8(a_, {rows_of_a, key_.k}, kernels::Fp8Format::e4m3, 1, scales);
        fill_fp8(b_, {rows_of_b, key_.k}, second, 2, scales + kScales / 2);
        problem_.set_scales(scales, scales + kScales / 2);
    }
    /// Hidden states, rounded as a linear layer would.
    void fill_fp8(const DeviceMemory& memory, kernels::Extent extent, kernels::Fp8Format format, std::uint64_t seed,
                  float* scales) {
        const std::int64_t partials = layers::norm_partials(extent.rows);
        const DeviceMemory wide = allocate(2 * extent.rows * extent.columns);
        const DeviceMemory parts = allocate(partials * static_cast<std::int64_t>(sizeof(float)));
        fill(wide, extent.rows * extent.columns, seed);
        kernels::fp8_scale(wide.get(), format, scales, static_cast<float*>(parts.get()), extent, partials,
                           stream_.get());
        kernels::fp8_quantize(wide.get(), scales, format, memory.get(), nullptr, extent, stream_.get());
        check(cudaGetLastError(), "filling a matrix in FP8");
        stream_.synchronize("filling a matrix in FP8");  // before its wide form goes
    }

    cublasLtContext* handle_;
    GemmKey key_;
    Stream stream_;
    GemmProblem problem_;
    GemmProblem problem_of_one_;
    DeviceMemory a_;
    DeviceMemory b_;
    std::int64_t d_bytes_;
    DeviceMemory c_;
    DeviceMemory d_;
    DeviceMemory bias_;
    DeviceMemory workspace_;
    DeviceMemory digest_;
    DeviceMemory step_;
    DeviceMemory scales_;
    std::vector<Event> starts_;
    std::vector<Event> ends_;
};

using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, CublasRelease>;

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
                 "saying what algorithms are wanted");
}

Preference make_preference(std::int64_t workspace_bytes) {
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&made), "saying what algorithms are wanted");
    Preference preference(made);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        set(preference, attribute, kAlignment);
    }
    return preference;
}

template <class Value>
Value config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
    Value value{};
    std::size_t written = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS ? value : Value{};
}

bool reduces_in_fixed_order(const cublasLtMatmulAlgo_t& algorithm) {
    const auto scheme = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

std::vector<Candidate> proposals(cublasLtContext* handle, const GemmProblem& problem, std::int64_t workspace_bytes) {
    const Preference preference = make_preference(workspace_bytes);
    std::array<cublasLtMatmulHeuristicResult_t, kProposals> results{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, problem.description(), problem.a(), problem.b(), problem.d(),
                                       problem.d(), preference.get(), kProposals, results.data(), &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_cublas(status, "asking for GEMM algorithms");
    std::vector<Candidate> candidates;
    for (int i = 0; i < count; ++i) {
        const cublasLtMatmulHeuristicResult_t& result = results.at(static_cast<std::size_t>(i));
        const auto needed = static_cast<std::int64_t>(result.workspaceSize);
        if (result.state != CUBLAS_STATUS_SUCCESS || needed > workspace_bytes) continue;
        if (reduces_in_fixed_order(result.algo)) candidates.push_back({result.algo, needed, false, 0});
    }
    return candidates;
}

/// Products of several experts: as a batch, and one after the other.
std::vector<Candidate> proposals(cublasLtContext* handle, const Bench& bench, const GemmKey& key,
                                 std::int64_t workspace_bytes) {
    std::vector<Candidate> candidates = proposals(handle, bench.problem(), workspace_bytes);
    if (key.experts == 1) return candidates;
    for (Candidate candidate : proposals(handle, bench.problem_of_one(), workspace_bytes)) {
        candidate.one_by_one = true;
        candidates.push_back(candidate);
    }
    return candidates;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// Leaves those near the fastest, so that the rounds go to what may win. Each has been launched before it counts.
void keep_the_fast(Bench& bench, std::vector<Candidate>& candidates) {
    std::erase_if(candidates, [&](const Candidate& candidate) { return !bench.launch(candidate); });
    if (candidates.empty()) return;
    bench.times_of(candidates);
    const std::vector<double> times = bench.times_of(candidates);
    const double slowest = kWorthMeasuring * *std::ranges::min_element(times);
    std::vector<Candidate> kept;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        if (times[i] <= slowest) kept.push_back(candidates[i]);
    }
    candidates = std::move(kept);
}

void measure(Bench& bench, std::vector<Candidate>& candidates) {
    std::vector<std::vector<double>> times(candidates.size());
    for (int round = 0; round < kRounds; ++round) {
        const std::vector<double> one = bench.times_of(candidates);
        for (std::size_t i = 0; i < candidates.size(); ++i) times[i].push_back(one[i]);
    }
    for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i].median_us = median(times[i]);
    std::ranges::stable_sort(candidates, {}, &Candidate::median_us);
}

/// `c` stands apart from `d` here, so what `d` held before must not matter.
bool is_repeatable(Bench& bench, const Candidate& candidate) {
    const std::uint64_t first = bench.digest(candidate, 0);
    return bench.digest(candidate, 0x3f) == first && bench.digest(candidate, 0) == first;
}

GemmAlgorithm describe(const Candidate& candidate) {
    GemmAlgorithm result;
    const cublasLtMatmulAlgo_t& algorithm = candidate.algorithm;
    std::memcpy(result.raw.data(), &algorithm.data[0], sizeof result.raw);
    result.workspace_bytes = candidate.workspace_bytes;
    result.id = config<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID);
    result.tile = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID);
    result.stages = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID);
    result.split_k = config<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
    result.reduction = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    result.swizzle = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
    result.custom = config<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
    result.inner_shape = config<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
    result.cluster = config<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
    result.one_by_one = candidate.one_by_one;
    result.microseconds = candidate.median_us;
    return result;
}

}  // namespace

GemmAlgorithm choose_algorithm(cublasLtContext* handle, const GemmKey& key, std::int64_t workspace_bytes) {
    Bench bench(handle, key, workspace_bytes);
    std::vector<Candidate> candidates = proposals(handle, bench, key, workspace_bytes);
    keep_the_fast(bench, candidates);
    measure(bench, candidates);
    const auto chosen = std::ranges::find_if(candidates, [&](const Candidate& c) { return is_repeatable(bench, c); });
    if (chosen != candidates.end()) return describe(*chosen);
    throw DeviceError(fmt::format("cuBLASLt {} has no repeatable algorithm for {} within {} bytes of workspace, on {}",
                                  cublasLtGetVersion(), to_string(key), workspace_bytes, current_device_text()));
}

}  // namespace stowage::executor
