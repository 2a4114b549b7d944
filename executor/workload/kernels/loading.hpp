#pragma once

// The driver loads a kernel when it is first used, which takes time and memory: neither belongs into a capture or a
// measured step.

namespace stowage::executor::kernels {

/// Loads every kernel of this folder onto the current device. A failure is left as the last error.
void load_kernels();

void load_input_kernels();
void load_embedding_kernels();
void load_norm_kernels();
void load_sum_kernels();
void load_rotary_kernels();
void load_head_norm_kernels();
void load_latent_pack_kernels();
void load_activation_kernels();
void load_loss_kernels();
void load_debug_kernels();
void load_router_kernels();
void load_routing_kernels();
void load_permute_kernels();
void load_exchange_kernels();
void load_column_kernels();
void load_weighted_activation_kernels();
void load_optimizer_kernels();
void load_fp8_kernels();
void load_stand_in_kernels();

}  // namespace stowage::executor::kernels
