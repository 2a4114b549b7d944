#pragma once

#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// Which of Transformer Engine's kinds of attention runs: cuDNN's fused kernels, flash-attn, or plain GEMMs and a
/// softmax. Layers of Megatron's own (`transformer_impl: local`) have the last.
enum class AttentionBackend : std::uint8_t { fused, flash, unfused };

/// Transformer Engine's choice for the job.
/// The environment switches kinds off (NVTE_FLASH_ATTN, NVTE_FUSED_ATTN). With NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
/// cuDNN's falls out before Hopper, and on Blackwell with attention dropout. Flash attention 2 takes heads of one size
/// up to 256 and plain softmax. Where both are left, cuDNN's runs from Hopper on and flash before. Source: Transformer
/// Engine, pytorch/attention/dot_product_attention/utils.py (get_attention_backend) and
/// common/fused_attn/fused_attn.cpp.
AttentionBackend attention_backend(const types::Scenario& scenario);

}  // namespace stowage::layers
