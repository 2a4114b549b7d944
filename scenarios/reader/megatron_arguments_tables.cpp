#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "scenarios/reader/megatron_arguments_parts.hpp"
#include "scenarios/reader/nearest.hpp"

namespace stowage::reader {
namespace {

// Three tables of Megatron-LM's arguments (training/arguments.py and the fields of core's TransformerConfig and of the
// training configurations, main of August 2026). An argument that the importer reads stands in none of them.

/// Changes what a layer is, and the scenario language has no word for it.
struct Refused {
    std::string_view name;
    std::string_view harmless;  ///< the value that changes nothing; besides false and null
    std::string_view what;
    std::string_view hint;
    bool has_value = false;  ///< null is no value; for a flag it sets it
};
constexpr std::string_view kLeaveOut = "leave it out";
constexpr Refused kRefused[] = {
    {"use_megatron_fsdp", "", "Megatron-FSDP", "use-distributed-optimizer is planned"},
    {"use_custom_fsdp", "", "Megatron-FSDP", "use-distributed-optimizer is planned"},
    {"use_torch_fsdp2", "", "PyTorch's FSDP", "use-distributed-optimizer is planned"},
    {"data_parallel_sharding_strategy", "no_shard", "sharded data parallelism", "use-distributed-optimizer is planned",
     true},
    {"outer_dp_sharding_strategy", "no_shard", "sharding over outer replicas", kLeaveOut, true},
    {"use_legacy_models", "", "the models before Megatron core", kLeaveOut},
    {"spec", "", "a layer specification of one's own", "leave it out, or write a scenario by hand", true},
    {"heterogeneous_layers_config_path", "", "layers that differ one by one", "write a scenario by hand", true},
    {"heterogeneous_layers_config_encoded_json", "", "layers that differ one by one", "write a scenario by hand", true},
    {"decoder_num_layers", "", "an encoder and a decoder", "give num-layers of a decoder-only model", true},
    {"decoder_seq_length", "", "an encoder and a decoder", "give seq-length of a decoder-only model", true},
    {"retro_add_retriever", "", "Retro", kLeaveOut},
    {"hybrid_attention_ratio", "0.0", "a hybrid model given by ratios", "give hybrid-layer-pattern", true},
    {"hybrid_mlp_ratio", "0.0", "a hybrid model given by ratios", "give hybrid-layer-pattern", true},
    {"standalone_embedding_stage", "", "a stage for the embedding alone", "give pipeline-model-parallel-layout"},
    {"hybrid_context_parallel", "", "context parallelism that varies by sequence", "give context-parallel-size"},
    {"dynamic_context_parallel", "", "context parallelism that varies by sequence", "give context-parallel-size"},
    {"moe_extended_tp", "", "an argument that Megatron gave up", "give expert-tensor-parallel-size"},
    {"moe_use_legacy_grouped_gemm", "", "experts of the older grouped GEMM", "moe-grouped-gemm is planned"},
    {"moe_paged_stash", "", "stashing of expert activations", kLeaveOut},
    {"qk_l2_norm", "", "L2 norms of queries and keys", kLeaveOut},
    {"fp32_residual_connection", "", "a residual stream in fp32", kLeaveOut},
    {"apply_residual_connection_post_layernorm", "", "residuals after the norm", kLeaveOut},
    {"sandwich_norm", "", "norms after attention and MLP", kLeaveOut},
    {"enable_hyper_connections", "", "hyper connections", kLeaveOut},
    {"first_last_layers_bf16", "", "first and last layers in bf16 beside FP8 ones", kLeaveOut},
    {"fp4_param_gather", "", "parameters in FP4", kLeaveOut},
    {"fp8_dot_product_attention", "", "attention in FP8", kLeaveOut},
    {"fp8_multi_head_attention", "", "attention in FP8", kLeaveOut},
    {"kitchen_config_file", "", "quantisation by kitchen", kLeaveOut, true},
    {"kitchen_recipe_number", "", "quantisation by kitchen", kLeaveOut, true},
    {"te_precision_config_file", "", "a precision for each module", kLeaveOut, true},
    {"cpu_offloading_num_layers", "0", "offloading of whole layers", "fine-grained-activation-offloading is planned",
     true},
    {"cpu_offloading", "", "offloading of whole layers", "fine-grained-activation-offloading is planned"},
    {"distribute_saved_activations", "", "checkpoints split over tensor-parallel ranks", "use sequence-parallel"},
    {"checkpoint_activations", "", "an argument that Megatron gave up", "use recompute-granularity"},
    {"batch_size", "", "an argument that Megatron gave up", "use micro-batch-size", true},
    {"model_parallel_size", "", "an argument that Megatron gave up", "use tensor-model-parallel-size", true},
    {"packing_varlen_dataset", "", "sequences of varying length", kLeaveOut},
    {"sft", "", "sequences of varying length", kLeaveOut},
    {"perform_rl_step", "", "reinforcement learning", kLeaveOut},
    {"vision_pretraining", "", "vision models", kLeaveOut},
    {"freeze_LM", "", "frozen parameters", kLeaveOut},
    {"peft", "", "adapters", kLeaveOut, true},
};

/// Has an effect on memory or time that is not planned; the plan is made without it.
struct Noted {
    std::string_view name;
    std::string_view what;
};
constexpr Noted kNoted[] = {
    {"cross_entropy_loss_fusion", "planned with Megatron's loss that is not fused"},
    {"cross_entropy_fusion_impl", "planned with Megatron's loss that is not fused"},
    {"use_transformer_engine_op_fuser", "planned with separate operations"},
    {"no_bias_gelu_fusion", "planned with fused bias and activation"},
    {"no_bias_swiglu_fusion", "planned with fused bias and activation"},
    {"no_bias_dropout_fusion", "planned with fused bias, dropout and residual"},
    {"bias_activation_fusion", "planned with fused bias and activation"},
    {"no_rope_fusion", "planned with fused rotary embeddings"},
    {"use_te_activation_func", "planned with Megatron's fused activation"},
    {"moe_router_fusion", "planned as Megatron's default"},
    {"moe_router_dtype", "planned as Megatron's default"},
    {"moe_router_load_balancing_type", "tokens are taken as balanced over experts"},
    {"moe_router_padding_for_fp8", "planned without padding of each expert's tokens"},
    {"moe_router_padding_for_quantization", "planned without padding of each expert's tokens"},
    {"moe_use_device_initiated_grouped_gemm", "planned as a grouped GEMM started by the host"},
    {"moe_apply_probs_on_input", "planned with probabilities applied after the activation"},
    {"activation_func_fp8_input_store", "planned with the activation's input in bf16"},
    {"use_tp_pp_dp_mapping", "ranks are taken in the order tensor, context, data, pipeline"},
    {"overlap_p2p_communication_warmup_flush", "planned without overlap outside the steady state"},
    {"overlap_param_gather_with_optimizer_step", "planned without this overlap"},
    {"align_grad_reduce", "planned without alignment of reductions"},
    {"no_align_grad_reduce", "planned without alignment of reductions"},
    {"align_param_gather", "planned without alignment of gathers"},
    {"no_align_param_gather", "planned without alignment of gathers"},
    {"ddp_bucket_size", "planned with Megatron's own buckets"},
    {"ddp_num_buckets", "planned with Megatron's own buckets"},
    {"ddp_pad_buckets_for_high_nccl_busbw", "planned with Megatron's own buckets"},
    {"ddp_average_in_collective", "planned as a sum and a scaling"},
    {"nccl_ub", "planned without registered buffers"},
    {"use_nccl_ub", "planned without registered buffers"},
    {"use_sharp", "planned without reductions in the network"},
    {"reuse_grad_buf_for_mxfp8_param_ag", "planned with buffers of their own"},
    {"keep_fp8_weight_transpose_cache", "planned as Megatron's default"},
    {"no_fp8_wgrad", "planned with weight gradients in FP8"},
    {"use_torch_optimizer_for_cpu_offload", "planned as Megatron's own optimizer on the host"},
    {"no_pin_cpu_grads", "planned with pinned memory"},
    {"no_pin_cpu_params", "planned with pinned memory"},
    {"rampup_batch_size", "planned at the full global batch size"},
    {"decrease_batch_size_if_needed", "planned at the full global batch size"},
    {"accumulate_allreduce_grads_in_fp32", "as Megatron: gradients are summed in fp32 unless grad-reduce-in-bf16"},
    {"mtp_use_repeated_layer", "planned with parameters of its own for each depth"},
    {"empty_unused_memory_level", "planned without emptying the allocator's cache"},
    {"cuda_graph_use_single_mempool", "planned as Megatron's default"},
    {"cuda_graph_retain_backward_graph", "planned as Megatron's default"},
    {"moe_hybridep_num_sms", "planned as Megatron's default"},
    {"moe_deepep_num_sms", "planned as Megatron's default"},
    {"moe_flex_dispatcher_num_sms", "planned as Megatron's default"},
    {"use_fused_weighted_squared_relu", "planned as Megatron's default"},
    {"disable_mamba_mem_eff_path", "planned with the memory-efficient path"},
    {"pipeline_model_parallel_comm_backend", "planned with NCCL"},
    {"batch_invariant_mode", "planned with the kernels of the usual mode"},
};

/// Without effect on the memory and the time of a training step.
constexpr std::string_view kIgnored[] = {
    "seed",
    "lr",
    "min_lr",
    "warmup",
    "optimizer_param_scheduler",
    "weight_decay",
    "weight_decay_incr_style",
    "start_weight_decay",
    "end_weight_decay",
    "apply_wd_to_qk_layernorm",
    "clip_grad",
    "sgd_momentum",
    "loss_scale",
    "initial_loss_scale",
    "min_loss_scale",
    "loss_scale_window",
    "hysteresis",
    "fp16_lm_cross_entropy",
    "decoupled_lr",
    "decoupled_min_lr",
    "override_opt_param_scheduler",
    "override_opt_param-scheduler",
    "use_checkpoint_opt_param_scheduler",
    "init_method_std",
    "embedding_init_method_std",
    "init_method_xavier_uniform",
    "data_parallel_random_init",
    "finetune",
    "use_checkpoint_args",
    "use_mp_args_from_checkpoint_args",
    "no_use_tokenizer_model_from_checkpoint_args",
    "exit_on_missing_checkpoint",
    "exit_interval",
    "exit_duration_in_mins",
    "exit_signal_handler",
    "exit_signal",
    "skip_train",
    "iterations_to_skip",
    "result_rejected_tracker_filename",
    "async_save",
    "async_strategy",
    "async_ckpt_use_cpu_shm",
    "async_ckpt_use_cached_ckpt_structure",
    "replication",
    "replication_jump",
    "replication_factor",
    "auto_detect_ckpt_format",
    "verify_integrity",
    "verify_checkpoint",
    "distrib_optim_fully_reshardable_mem_efficient",
    "use_persistent_ckpt_worker",
    "use_dist_ckpt",
    "distributed_backend",
    "distributed_timeout_minutes",
    "distributed_timeout_seconds_after_init",
    "local_rank",
    "lazy_mpu_init",
    "account_for_nccl",
    "nccl_communicator_config_path",
    "high_priority_stream_groups",
    "enable_gloo_process_groups",
    "disable_gloo_process_groups",
    "disable_jit_fuser",
    "use_mcore_models",
    "deprecated_use_mcore_models",
    "use_flash_attn",
    "attention_softmax_in_fp32",
    "apply_query_key_layer_scaling",
    "calculate_per_token_loss",
    "no_persist_layer_norm",
    "te_rng_tracker",
    "inference_rng_tracker",
    "norm_epsilon",
    "apply_layernorm_1p",
    "layernorm_zero_centered_gamma",
    "memory_efficient_layer_norm",
    "rotary_base",
    "rotary_percent",
    "rotary_interleaved",
    "rotary_scaling_factor",
    "rotary_seq_len_interpolation_factor",
    "use_rope_scaling",
    "rope_scaling_factor",
    "no_rope_freq",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mrope_section",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "openai_gelu",
    "onnx_safe",
    "bert_no_binary_head",
    "activation_func_clamp_value",
    "glu_linear_offset",
    "squared_softmax",
    "cache_mla_latents",
    "moe_router_topk_limited_devices",
    "moe_router_bias_update_rate",
    "moe_router_force_load_balancing",
    "moe_router_force_biased",
    "moe_aux_loss_coeff",
    "moe_z_loss_coeff",
    "moe_input_jitter_eps",
    "moe_per_layer_logging",
    "moe_token_drop_policy",
    "moe_use_upcycling",
    "moe_upcycling_granularity",
    "moe_enable_routing_replay",
    "fp8_margin",
    "fp8_interval",
    "fp8_amax_history_len",
    "fp8_amax_compute_algo",
    "fp8_quantizer_factory",
    "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16",
    "tp_comm_overlap_cfg",
    "no_async_tensor_model_parallel_allreduce",
    "async_tensor_model_parallel_allreduce",
    "manual_gc",
    "manual_gc_interval",
    "no_manual_gc_eval",
    "no_check_for_nan_in_loss_and_grad",
    "check_for_nan_in_loss_and_grad",
    "check_for_spiky_loss",
    "check_for_large_grads",
    "check_weight_hash_across_dp_replicas_interval",
    "rerun_mode",
    "error_injection_rate",
    "error_injection_type",
    "mock_data",
    "data_path",
    "data_args_path",
    "data_cache_path",
    "data_sharding",
    "no_data_sharding",
    "split",
    "per_split_data_args_path",
    "no_mmap_bin_files",
    "dataloader_type",
    "dataloader_save",
    "dataloader_save_dir",
    "num_workers",
    "num_dataset_builder_threads",
    "object_storage_cache_path",
    "mid_level_dataset_surplus",
    "reset_position_ids",
    "reset_attention_mask",
    "eod_mask_loss",
    "create_attention_mask_in_dataloader",
    "no_create_attention_mask_in_dataloader",
    "allow_ambiguous_pad_tokens",
    "legacy_tokenizer",
    "merge_file",
    "vocab_file",
    "vocab_extra_ids",
    "tiktoken_pattern",
    "tiktoken_num_special_tokens",
    "tiktoken_special_tokens",
    "trust_remote_code",
    "sample_rate",
    "mask_prob",
    "short_seq_prob",
    "full_validation",
    "multiple_validation_sets",
    "use_one_sent_docs",
    "start_weight_decay",
    "timing_log_level",
    "timing_log_option",
    "barrier_with_L1_time",
    "barrier_with_level_1_timing",
    "no_barrier_with_level_1_timing",
    "no_log_loss_scale_to_tensorboard",
    "no_log_learnig_rate_to_tensorboard",
    "no_log_learning_rate_to_tensorboard",
    "hook_log_interval",
    "logging_level",
    "profile",
    "profile_step_start",
    "profile_step_end",
    "profile_ranks",
    "use_pytorch_profiler",
    "record_memory_history",
    "memory_snapshot_path",
    "record_shapes",
    "nvtx_ranges",
    "report_memory_interval",
    "adlr_autoresume",
    "adlr_autoresume_interval",
    "no_one_logger",
    "enable_one_logger",
    "enable_ft_package",
    "calc_ft_timeouts",
    "config_logger_dir",
    "run_workload_inspector_server",
    "enable_msc",
    "disable_msc",
    "enable_experimental",
    "yaml_cfg",
    "straggler_ctrlr_port",
    "straggler_minmax_count",
    "disable_straggler_on_startup",
    "rank",
    "master_addr",
    "master_port",
    "node_rank",
    "ignore_unknown_args",
    "use_cpu_initialization",
    "no_initialization",
    "perform_initialization",
    "defer_init",
    "init_model_with_meta_device",
    "dump_param_to_param_group_map",
    "use_ring_exchange_p2p",
    "tp_comm_bootstrap_backend",
    "megatron_fsdp_grad_comm_dtype",
    "megatron_fsdp_main_grads_dtype",
    "megatron_fsdp_main_params_dtype",
    "no_use_layer_wise_param_layout",
    "max_tokens_to_oom",
    "output_bert_embeddings",
    "bert_embedder_type",
    "flash_decode",
    "decode_only_cuda_graphs",
    "symmetric_ar_type",
    "nccl_all_reduce_for_prefill",
    "mlp_chunks_for_prefill",
    "disable_chunked_prefill",
    "use_legacy_static_engine",
    "moe_pad_experts_for_cuda_graph_inference",
    "tokenizer_model",
    "tokenizer_metadata",
    "tokenizer_hf_use_fast",
};

/// Beginnings of names of whole groups without effect: checkpoints, logs, evaluation, data, learning rates, inference.
constexpr std::string_view kIgnoredBeginnings[] = {
    "save",
    "load",
    "ckpt_",
    "dist_ckpt",
    "distrib_optim_",
    "non_persistent_",
    "no_load_",
    "no_save",
    "no_ckpt",
    "log_",
    "no_log_",
    "tensorboard_",
    "wandb_",
    "one_logger_",
    "eval_",
    "train_",
    "valid_",
    "test_",
    "lr_",
    "adam_",
    "muon_",
    "retro_",
    "rl_",
    "grpo_",
    "inference_",
    "inprocess_",
    "ft_",
    "app_tag_",
    "error_",
    "straggler",
    "tiktoken_",
    "biencoder_",
    "ict_",
    "dino_",
    "vision_",
    "img_",
    "retriever_",
    "indexer_",
    "fim_",
    "mamba_inference_",
    "langrl_",
    "strict_fsdp",
    "no_strict_fsdp",
};

template <class Table>
const auto* entry(const Table& table, std::string_view name) {
    const auto* const at =
        std::find_if(std::begin(table), std::end(table), [&](const auto& row) { return row.name == name; });
    return at == std::end(table) ? nullptr : at;
}

bool is_ignored(std::string_view name) {
    if (std::find(std::begin(kIgnored), std::end(kIgnored), name) != std::end(kIgnored)) return true;
    return std::any_of(std::begin(kIgnoredBeginnings), std::end(kIgnoredBeginnings),
                       [&](std::string_view beginning) { return name.starts_with(beginning); });
}

/// `0`, `0.0` and `no_shard` and the like say what is so without the argument.
bool harmless(Arguments& arguments, const Refused& refused) {
    if (!(refused.has_value ? arguments.given(refused.name) : arguments.set(refused.name))) return true;
    if (refused.harmless.empty()) return false;
    const auto words = arguments.words(refused.name, {});
    if (!words || words->size() != 1) return false;
    return words->front() == refused.harmless || (refused.harmless == "0.0" && words->front() == "0");
}

std::vector<std::string_view> known_argument_names() {
    std::vector<std::string_view> names(std::begin(kIgnored), std::end(kIgnored));
    for (const Refused& refused : kRefused) names.push_back(refused.name);
    for (const Noted& noted : kNoted) names.push_back(noted.name);
    return names;
}

void note_unknown(Arguments& arguments, std::string_view name) {
    std::vector<std::string_view> known = known_argument_names();
    const std::string_view near = nearest(name, known);
    arguments.note(name, near.empty() ? "unknown argument, passed over"
                                      : "unknown argument, passed over; did you mean " + std::string(near) + "?");
}

void settle(Arguments& arguments, std::string_view name) {
    if (const Refused* const refused = entry(kRefused, name)) {
        if (harmless(arguments, *refused)) return;
        return arguments.cannot_say(name, std::string(refused->what), std::string(refused->hint));
    }
    if (const Noted* const noted = entry(kNoted, name)) {
        if (arguments.set(name)) arguments.note(name, noted->what);
        return;
    }
    if (!is_ignored(name)) note_unknown(arguments, name);
}

}  // namespace

void settle_other_arguments(Arguments& arguments) {
    for (const std::string& name : arguments.names())
        if (!arguments.asked(name)) settle(arguments, name);
}

}  // namespace stowage::reader
