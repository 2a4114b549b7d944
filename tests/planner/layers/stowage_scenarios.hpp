#pragma once

#include "scenarios/types/scenario.hpp"

namespace stowage::layers::testing {

/// Implementation `stowage`, four microbatches, optimizer none; sizes that no two tensors of a layer share, so that a
/// wrong operand has wrong bytes.
///
/// Layers alone: 4 layers, h 384, 6 heads of 56, SwiGLU of width 1000, 2 x 320 tokens; RMSNorm, no positions.
types::Scenario bare_stack();
/// The same with embedding and output layer over 1000 tokens (padded to 1024), LayerNorm, GELU, biases.
types::Scenario plain_gpt();
/// With 2 groups of keys and rotary positions instead, SwiGLU, RMSNorm, gradients in bf16.
types::Scenario grouped_gpt();
/// That one with multi-latent attention: compressed query 136, compressed keys and values 88, heads of 40 columns and
/// 16 turned ones, values of 32.
types::Scenario latent_gpt();
/// grouped_gpt with a dense layer and three of 24 experts of width 200, three a token, and a shared expert of width
/// 136.
types::Scenario moe_gpt();
/// The same with a layer of multi-token prediction.
types::Scenario predicting_gpt();
/// The same on 4 ranks of experts, without the shared one.
types::Scenario moe_slice();
/// grouped_gpt with 8 heads and groups of 48 and width 1088, split over so many ranks.
types::Scenario tensor_slice(std::int64_t ranks, bool sequence_parallel);

}  // namespace stowage::layers::testing
