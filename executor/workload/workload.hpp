#pragma once

// Runs the calls of planner/layers/kernel_call.hpp, those of implementation `stowage`, on device memory.
//
//   Workload workload({.device = 0, .gemm_table = "gemms.json", .seed = 1});
//   workload.prepare(shapes);                        // measures, builds, allocates; before the program's memory
//   workload.begin_step(step, stream);               // outside of captures
//   workload.launch(call, sizes, buffers, stream, {.microbatch = 0, .layer = 3});
//
// After `prepare`, `launch` allocates, builds and measures nothing, so it may be captured. Everything is deterministic:
// the same calls on the same bytes give the same bits, with the same table of GEMM algorithms.
//
// Attention's layout: attention.hpp. GELU is the exact one. Rows in bf16 are multiples of 8 elements.
//
// Tested by: tests/executor/workload/.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/workload/attention.hpp"
#include "executor/workload/gemm_table.hpp"
#include "planner/layers/kernel_call.hpp"

namespace stowage::executor {

struct WorkloadOptions {
    int device = 0;
    std::filesystem::path gemm_table;  ///< read if it is there, written when something was measured; empty: neither
    std::uint64_t seed = 1;            ///< of tokens and hidden states
};

/// Which instance of a call: its microbatch chooses the data and the place of the loss; its layer is for messages.
struct LaunchPlace {
    std::int64_t microbatch = 0;
    std::int64_t layer = 0;
};

/// What `prepare` must know of a call.
struct CallShape {
    layers::Call call = layers::Call::none;
    layers::CallSizes sizes;
};

/// A call of attention whose workspace was looked at.
struct PreparedAttention {
    CallShape shape;
    AttentionWorkspace workspace;
};

/// For one device and one thread.
class Workload {
public:
    /// Makes the device current. Throws: DeviceError; types::InputError for a table that does not belong here.
    explicit Workload(const WorkloadOptions& options);
    Workload(const Workload&) = delete;
    Workload& operator=(const Workload&) = delete;
    Workload(Workload&&) noexcept;
    Workload& operator=(Workload&&) noexcept;
    ~Workload();

    /// Makes every distinct call ready: GEMM algorithms from the table or measured now, cuDNN's plans, kernels loaded.
    /// While it measures it needs memory for the largest product's matrices.
    /// Returns what attention does with its workspaces. Throws: DeviceError; types::UnsupportedError for sizes that no
    /// kernel here takes.
    std::vector<PreparedAttention> prepare(std::span<const CallShape> calls);

    /// The step number for `load_tokens` and `load_hidden` launched or replayed after it on `stream`.
    void begin_step(std::uint64_t step, cudaStream_t stream);

    /// Throws: std::logic_error if the operands are not those of the call, or if it was not prepared; DeviceError.
    void launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream,
                const LaunchPlace& place);

    /// Looks at the counts of rows that counts_to_host brought since the last call, by launches and by replays; what it
    /// brought must be complete: call it when the host has waited for the stream. Throws: types::Error with exit code
    /// 4, naming layer and expert, if the routing gave an expert more rows than planned.
    void check_counts();

    /// table[sequence, head_size / 2, 2], fp32: cos and sin of place * base^(-2 i / head_size).
    void fill_rotary_table(void* table, std::int64_t sequence, std::int64_t head_size, double base,
                           cudaStream_t stream);

    /// The algorithms in use; comparing bits compares runs with equal tables.
    [[nodiscard]] const GemmTable& gemm_table() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace stowage::executor
