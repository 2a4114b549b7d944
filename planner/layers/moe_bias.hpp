#pragma once

// The bias of experts' fc2. It is not the GEMM's: each row gets its expert's bias times its own routing weight, expert
// by expert in fp32, then the pieces are concatenated and rounded. The product saves the weights once more, outside the
// offload groups. Source: Megatron-LM, core/transformer/moe/experts.py.

#include <optional>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

struct ExpertBias {
    std::optional<SavedIndex> weights;  ///< none: there are no biases
    Slot output{};
};
/// [N, width] -> [N, width]; drops `output` where it makes another.
ExpertBias expert_bias_forward(Writer& writer, Slot output, Slot weights);

/// Gradients behind the bias: of fc2's output, and of the routing weights through the bias.
struct ExpertBiasGradients {
    Slot rows{};
    std::optional<Slot> weights;
};
/// Drops `gradient` where it makes another.
ExpertBiasGradients expert_bias_backward(Writer& writer, const ExpertBias& bias, Slot gradient);

}  // namespace stowage::layers
