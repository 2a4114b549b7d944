#pragma once

// Causal attention, forward and backward, through cuDNN's fused kernels; without dropout, the backward deterministic.
//
// Layout. A row is one token: row = place * batch + sequence of the batch. A packed row holds all queries (heads x
// head_size), then all keys (groups x head_size), then all values (groups x value_size, head_size unless said
// otherwise); query head h attends to group h / (heads / groups).
// The library sees strided views of that, so nothing is copied. The gradient is packed alike; statistics are the
// log-sum-exp of each row of scores, fp32 [batch, heads, sequence].
//
// Workspace. On Hopper, cuDNN's deterministic backward keeps the gradient of the scores, batch x heads x sequence x
// sequence in bf16 with the sequence rounded up to 64: 1 GiB for 32 heads and 4096 places. When the program gives less,
// the backward is run for some heads at a time, as many as fit, each part with its own groups.
//
// Tested by: tests/executor/workload/attention_gpu_test.cpp, against plain softmax on the host.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <span>

#include "planner/layers/kernel_call.hpp"

namespace stowage::executor {

/// What a prepared call does with its workspace.
struct AttentionWorkspace {
    std::int64_t whole_bytes = 0;  ///< for all heads at once
    std::int64_t used_bytes = 0;   ///< as it is run
    std::int64_t parts = 1;        ///< the kernels are launched for heads / parts of one sequence at a time; 1: for all
};

constexpr bool is_attention(layers::Call call) {
    return call == layers::Call::attention_forward || call == layers::Call::attention_backward;
}

/// For one device, the one that is current when it is made. Not for several threads at once.
class Attention {
public:
    /// Starts nothing yet. Throws: nothing.
    Attention();
    Attention(const Attention&) = delete;
    Attention& operator=(const Attention&) = delete;
    Attention(Attention&&) noexcept;
    Attention& operator=(Attention&&) noexcept;
    ~Attention();

    /// Builds the plan of a call. Cost: up to seconds, once for equal sizes.
    /// Throws: DeviceError if this build or this machine has no cuDNN, if it does not support the sizes, or if
    /// `sizes.workspace_bytes` is less than one group's heads need, with what is needed.
    AttentionWorkspace prepare(layers::Call call, const layers::CallSizes& sizes);

    /// Throws: std::logic_error if the call was not prepared or the operands do not fit; DeviceError.
    void launch(layers::Call call, const layers::CallSizes& sizes, std::span<void* const> buffers, cudaStream_t stream);

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace stowage::executor
