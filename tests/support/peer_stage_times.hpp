#pragma once

// Shapes and kernel times of the measured peer (peer_stage.hpp).

#include <cmath>
#include <vector>

#include "scenarios/types/time.hpp"
#include "tests/support/peer_stage.hpp"

namespace stowage::testing::peer {

inline constexpr std::int64_t kTokens = 4096;
inline constexpr std::int64_t kHidden = 4096;
inline constexpr std::int64_t kFfn = 14336;
inline constexpr std::int64_t kHeads = 32;
inline constexpr std::int64_t kLayers = 8;

inline const std::vector<std::int64_t> kHiddenShape{1, kTokens, kHidden};
inline const std::vector<std::int64_t> kHeadShape{1, kHeads, kTokens, kHidden / kHeads};

// Profiled, ms a microbatch by phase and class. Their sum is 87.544; the step takes 366.2 / 4 = 91.55, since the
// profiled run was cooler, so each time is scaled by 1.0458.

inline constexpr double kForwardLinear = 21.721;
inline constexpr double kForwardAttention = 2.367;
inline constexpr double kForwardRest = 3.648;
inline constexpr double kForwardLoss = 0.116;
inline constexpr double kBackwardLinear = 43.791;
inline constexpr double kBackwardAttention = 7.201;
inline constexpr double kBackwardRest = 8.70;
inline constexpr double kProfiled = kForwardLinear + kForwardAttention + kForwardRest + kForwardLoss + kBackwardLinear +
                                    kBackwardAttention + kBackwardRest;
inline constexpr double kSteady = kPeerStepMs / static_cast<double>(kPeerMicrobatches) / kProfiled;

inline types::Nanoseconds steady_time(double profiled_ms) {
    return types::Nanoseconds{std::llround(profiled_ms * kSteady * 1e6)};
}

/// Median times of kernels, us. Adds move 96 MiB (32 MiB tensors), cats 448 and 192 MiB in a median of 83.4 over both.
inline constexpr double kNormForward = 23.4;
inline constexpr double kAddForward = 22.7;
inline constexpr double kActivationForward = 178.7;        // silu, and mul, on halves of one tensor
inline constexpr double kNormBackward = 37.7;              // input gradient
inline constexpr double kNormWeight = 27.2;                // weight gradient
inline constexpr double kAdd = 22.9;                       // in place, 32 MiB
inline constexpr double kActivationBackward = 191.2;       // silu_backward, and mul by a half
inline constexpr double kContiguousMul = 82.4;             // 336 MiB
inline constexpr double kCatMlp = 2 * 83.4 * 448 / 640.0;  // by traffic
inline constexpr double kCatQkv = 2 * 83.4 * 192 / 640.0;
/// Weight gradients are added from the second microbatch on: three of four times.
inline constexpr double kAccumulate = kAdd / 32;  // a MiB
inline constexpr double kAccumulateNorm = 1.46;   // 8 KiB: an empty kernel
/// Before every GEMM, every attention and a reduction to one number.
inline constexpr double kMemsetForward = 0.8;
inline constexpr double kMemsetBackward = 1.0;
/// docs/measurements/2026-11-29-h200-offload-lane.json; on a cool chip too.
inline constexpr double kReshape = 44.0;
inline constexpr double kLossBackward = kAccumulateNorm + 41.3 + 34.0 + 33.2 + 49.1 + kAdd;

inline constexpr double kLayerForwardRest =
    2 * kNormForward + 2 * kAddForward + 2 * kActivationForward + 5 * kMemsetForward;
inline constexpr double kLayerBackwardRest = 2 * (kNormBackward + kNormWeight + 0.75 * kAccumulateNorm) +
                                             9 * kMemsetBackward + 2 * kAdd + 2 * kActivationBackward + kContiguousMul +
                                             kCatMlp + kCatQkv + 0.75 * kAccumulate * (96 + 32 + 224 + 112);
inline constexpr double kBackwardRestSum = kLayers * kLayerBackwardRest + kLossBackward;

inline double linear_flops(std::int64_t in, std::int64_t out) {
    return 2.0 * static_cast<double>(kTokens) * static_cast<double>(in) * static_cast<double>(out);
}

inline double layer_flops() {
    return linear_flops(kHidden, 3 * kHidden) + linear_flops(kHidden, kHidden) + linear_flops(kHidden, 2 * kFfn) +
           linear_flops(kFfn, kHidden);
}

}  // namespace stowage::testing::peer
