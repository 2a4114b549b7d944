#include <algorithm>
#include <string_view>

#include "scenarios/reader/hugging_face_families.hpp"

namespace stowage::reader {
namespace {

/// Keys that change no size: names and tokens, generation, initialisation, epsilons, angles, losses and routing
/// details, quantisation of the published weights.
constexpr std::string_view kPassedOver[] = {
    "architectures",
    "auto_map",
    "model_type",
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "name_or_path",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "pad_id",
    "initial_context_length",
    "initializer_range",
    "init_std",
    "rms_norm_eps",
    "norm_eps",
    "layer_norm_epsilon",
    "norm_epsilon",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_interleave",
    "rotary_dim",
    "partial_rotary_factor",
    "max_position_embeddings",
    "pretraining_tp",
    "quantization_config",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_aux_loss_loss_coef",
    "router_jitter_noise",
    "router_dtype",
    "swiglu_limit",
    "norm_topk_prob",
    "routed_scaling_factor",
    "n_group",
    "topk_group",
    "topk_method",
    "scoring_func",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "num_experts_per_group",
    "mlp_intermediate_size",
    "layernorm_full_attention_beta",
    "layernorm_linear_attention_beta",
    "layernorm_mlp_beta",
    "sliding_window_pattern",
    "attn_implementation",
    "conv_kernel",
    "chunk_size",
    "expand",
    "mamba_hidden_act",
    "mamba_dt_limit",
    "mamba_ssm_cache_dtype",
    "mamba_d_conv",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "sparse_attention_config",
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    "use_conv_bias",
    "use_mamba_kernels",
    "num_logits_to_keep",
    "hidden_dropout",
    "moe_shared_expert_overlap",
    "head_dim",
    "num_key_value_heads",
    "qk_head_dim",
    "is_encoder_decoder",
    "unsloth_fixed",
    "max_window_layers",
    "mlp_layer_types",
    "layer_types",
    "hidden_act",
    "_name_or_path",
    "use_qk_norm",
    "kv_bias",
    "attention_chunk_size",
};

}  // namespace

void settle_other_keys(Arguments& config) {
    for (const std::string& name : config.names()) {
        const bool known = std::find(std::begin(kPassedOver), std::end(kPassedOver), name) != std::end(kPassedOver);
        if (!config.asked(name) && !known && config.given(name)) config.note(name, "unknown key, passed over");
    }
}

}  // namespace stowage::reader
