#pragma once

// The measured peer: Megatron-LM's unmodified offload manager driving a PyTorch stack on one H200, as data.
//
// Eight layers of RMSNorm, QKV linear (4096 to 12288), causal attention of 32 heads, output linear, residual, RMSNorm,
// SwiGLU (4096 to 2 x 14336 to 4096), residual, then the loss mean(x^2) in fp32; bf16; four microbatches of 1 x 4096
// tokens. No embedding: the caller holds the input, so offloading the first layer's norm frees nothing.
//
// Sizes and order of allocations and frees: docs/measurements/2026-11-29-h200-peer-memory-trace.json. Kernel times: the
// measured step with nothing offloaded (366.2 ms, mean of two machines), split by the profiled sums of linears,
// attention and the rest (docs/measurements/2026-11-29-h200-copy-interference.json), within linears by FLOPs, within
// the rest by the profiled kernels.
//
// Two things a program cannot say: gradients live from the first microbatch to the end of the step (here: always), and
// the output lives until the end of the microbatch's backward (here: of the loss's).

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/hardware.hpp"
#include "scenarios/types/module.hpp"

namespace stowage::testing {

inline constexpr std::int64_t kPeerMicrobatches = 4;
inline constexpr double kPeerStepMs = 366.2;

/// One measured mode of the peer. Times of up to two machines, the first machine's first.
struct PeerRow {
    std::string name;
    types::ModuleSet modules;
    std::vector<double> step_ms;
    types::Bytes peak_allocated;
    std::optional<types::Bytes> peak_reserved;
    types::Bytes table;  ///< what the manager's own summary prints, for one microbatch

    [[nodiscard]] double mean_step_ms() const;
};

/// What a test is called that takes a row.
inline void PrintTo(const PeerRow& row, std::ostream* out) { *out << row.name; }

/// The measured modes, nothing offloaded first.
std::vector<PeerRow> peer_rows();

/// The stack on its one stage while `offloaded` leaves every layer but the last. Attention's q, k, v come back
/// contiguous then, no longer views of the packed projection, and so do their gradients, which are gathered before they
/// are joined: three copies more. GEMMs take `gemm_time` of what they take on a chip that is never idle.
layers::StageLayers peer_stage(types::ModuleSet offloaded, double gemm_time = 1);

/// What GEMMs take on a chip that is busy for this share of the step, against one always busy. They run at the power
/// limit, power goes with the cube of the clock and is limited on average: what idling saves makes the rest faster.
double gemm_time_at(double busy_share);

/// The machine: scenarios/hardware/h200-8gpu.yaml as it ships, with the peer's measured host costs. Its launches are
/// fewer than the real ones (432 kernels and memsets a microbatch), so the launch queue is that much shorter.
types::Hardware peer_hardware();

}  // namespace stowage::testing
