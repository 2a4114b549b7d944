#include "executor/workload/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "executor/cuda/check.hpp"
#include "executor/workload/device_memory.hpp"
#include "executor/workload/gemm.hpp"
#include "executor/workload/host_counts.hpp"
#include "executor/workload/kernels/kernels.hpp"
#include "executor/workload/kernels/loading.hpp"
#include "executor/workload/launch_kernels.hpp"
#include "executor/workload/stand_ins.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {

struct Workload::State {
    WorkloadOptions options;
    DeviceMemory step;
    Gemms gemms;
    Attention attention;
    HostCounts counts;
    StandIns stand_ins;

    [[nodiscard]] std::uint64_t* step_number() const { return static_cast<std::uint64_t*>(step.get()); }
};

namespace {

DeviceMemory make_step(int device) {
    check(cudaSetDevice(device), fmt::format("choosing device {}", device));
    DeviceMemory step = allocate_on_device(sizeof(std::uint64_t), "allocating the step's number");
    check(cudaMemset(step.get(), 0, sizeof(std::uint64_t)), "clearing the step's number");
    return step;
}

/// The least workspace with which each product may be called: its algorithm must do with that.
std::map<GemmKey, std::int64_t> products_of(std::span<const CallShape> calls) {
    std::map<GemmKey, std::int64_t> products;
    for (const CallShape& shape : calls) {
        if (!is_gemm(shape.call)) continue;
        const std::int64_t given = shape.sizes.workspace_bytes;
        for (const GemmKey& key : gemm_keys(shape.call, shape.sizes)) {
            const auto [entry, is_new] = products.emplace(key, given);
            if (!is_new) entry->second = std::min(entry->second, given);
        }
    }
    return products;
}

/// A failed launch, said with the call's name; formatted only then.
void check_launch(layers::Call call, const LaunchPlace& place) {
    const cudaError_t code = cudaGetLastError();
    if (code == cudaSuccess) return;
    check(code,
          fmt::format("launching {} of layer {}, microbatch {}", layers::name_of(call), place.layer, place.microbatch));
}

}  // namespace

Workload::Workload(const WorkloadOptions& options) {
    DeviceMemory step = make_step(options.device);
    state_ = std::make_unique<State>(State{options, std::move(step), Gemms(), Attention(), HostCounts(), StandIns()});
    if (options.gemm_table.empty() || !std::filesystem::exists(options.gemm_table)) return;
    state_->gemms.use_table(read_gemm_table(options.gemm_table), options.gemm_table.string());
}

Workload::Workload(Workload&&) noexcept = default;
Workload& Workload::operator=(Workload&&) noexcept = default;
Workload::~Workload() = default;

std::vector<PreparedAttention> Workload::prepare(std::span<const CallShape> calls) {
    std::vector<PreparedAttention> prepared;
    for (const CallShape& shape : calls) {
        require_supported(shape.call, shape.sizes);
        if (shape.call == layers::Call::counts_to_host) state_->counts.prepare(shape.sizes.experts);
        if (shape.call == layers::Call::stand_in) state_->stand_ins.prepare();
        const auto is_same = [&](const PreparedAttention& other) {
            return other.shape.call == shape.call && other.shape.sizes == shape.sizes;
        };
        if (!is_attention(shape.call) || std::ranges::any_of(prepared, is_same)) continue;
        prepared.push_back({shape, state_->attention.prepare(shape.call, shape.sizes)});
    }
    kernels::load_kernels();
    check(cudaGetLastError(), "loading the workload's kernels");
    bool measured = false;
    for (const auto& [key, workspace_bytes] : products_of(calls)) {
        measured = state_->gemms.prepare(key, workspace_bytes) || measured;
    }
    if (measured && !state_->options.gemm_table.empty()) write_gemm_table(state_->options.gemm_table, gemm_table());
    return prepared;
}

void Workload::begin_step(std::uint64_t step, cudaStream_t stream) {
    kernels::set_step(state_->step_number(), step, stream);
    check(cudaGetLastError(), "setting the step's number");
}

void Workload::launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers,
                      cudaStream_t stream, const LaunchPlace& place) {
    STOWAGE_CHECK(place.microbatch >= 0, "microbatches count from 0");
    if (is_gemm(call)) return state_->gemms.launch(call, sizes, buffers, stream);
    if (is_attention(call)) return state_->attention.launch(call, sizes, buffers, stream);
    if (call == layers::Call::counts_to_host) return state_->counts.copy(sizes, buffers, place, stream);
    const kernels::LoadKey key{state_->options.seed, state_->step_number(),
                               static_cast<std::uint64_t>(place.microbatch)};
    if (call == layers::Call::stand_in)
        state_->stand_ins.launch(sizes.stand_in, buffers, key, stream);
    else
        launch_kernel({call, sizes}, buffers, key, stream);
    check_launch(call, place);
}

void Workload::check_counts() { state_->counts.require_planned(); }

void Workload::fill_rotary_table(void* table, std::int64_t sequence, std::int64_t head_size, double base,
                                 cudaStream_t stream) {
    kernels::fill_rotary_table(static_cast<float*>(table), sequence, head_size, base, stream);
    check(cudaGetLastError(), "filling the table of rotary angles");
}

const GemmTable& Workload::gemm_table() const { return state_->gemms.table(); }

}  // namespace stowage::executor
