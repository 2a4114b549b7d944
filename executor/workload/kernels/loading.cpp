#include "executor/workload/kernels/loading.hpp"

namespace stowage::executor::kernels {

void load_kernels() {
    load_input_kernels();
    load_embedding_kernels();
    load_norm_kernels();
    load_sum_kernels();
    load_rotary_kernels();
    load_head_norm_kernels();
    load_latent_pack_kernels();
    load_activation_kernels();
    load_loss_kernels();
    load_debug_kernels();
    load_router_kernels();
    load_routing_kernels();
    load_permute_kernels();
    load_exchange_kernels();
    load_column_kernels();
    load_weighted_activation_kernels();
    load_optimizer_kernels();
    load_fp8_kernels();
    load_stand_in_kernels();
}

}  // namespace stowage::executor::kernels
