#include "planner/layers/stowage/stowage_support.hpp"

#include <algorithm>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/stowage/stowage_scripts.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

constexpr const char* kMegatron = "leave it out, or set implementation to megatron";

void check_parallel(const types::ParallelLayout& layout, Missing& missing) {
    const auto one = [&](const char* key, std::int64_t size) {
        missing.when(size != 1, std::string{"parallel."} + key, setting(key, size), "use 1");
    };
    one("context_parallel_size", layout.context_parallel_size);
    const auto off = [&](const char* key, bool on) {
        missing.when(on, std::string{"parallel."} + key, std::string{key} + ": true", kMegatron);
    };
    off("overlap_moe_expert_parallel_comm", layout.overlap_moe_expert_parallel_comm);
    off("delay_wgrad_compute", layout.delay_wgrad_compute);
    off("defer_embedding_wgrad_compute", layout.defer_embedding_wgrad_compute);
    off("tp_comm_overlap", layout.tp_comm_overlap);
    off("moe_shared_expert_overlap", layout.moe_shared_expert_overlap);
}

bool mixes_otherwise(const types::Model& model) {
    return std::any_of(model.mixers.begin(), model.mixers.end(),
                       [](types::Mixer mixer) { return mixer != types::Mixer::attention; });
}

bool lacks_feed_forward(const types::Model& model) {
    return std::any_of(model.feed_forward.begin(), model.feed_forward.end(),
                       [](types::FeedForward half) { return half == types::FeedForward::none; });
}

void check_kind_of_model(const types::Model& model, Missing& missing) {
    missing.when(mixes_otherwise(model) || lacks_feed_forward(model), "model.hybrid_layer_pattern",
                 "layers other than attention with an MLP or experts", kMegatron);
    missing.when(model.transformer_impl != types::TransformerImpl::transformer_engine, "model.transformer_impl",
                 setting("transformer_impl", model.transformer_impl), "leave it out: it is about Megatron's layers");
    missing.when(!model.masked_softmax_fusion, "model.masked_softmax_fusion", "masked_softmax_fusion: false",
                 "leave it out: it is about Megatron's layers");
    const bool tied = !is_bare_stack(model) && !model.untie_embeddings_and_output_weights;
    missing.when(tied, "model.untie_embeddings_and_output_weights", "tied embeddings", "set it to true");
}

/// The layer inside is one as the model's last, and its projection a linear in bf16.
void check_prediction(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    if (model.mtp_num_layers == 0) return;
    missing.when(is_bare_stack(model), "model.mtp_num_layers", "multi-token prediction without a vocabulary",
                 "set mtp_num_layers to 0");
    missing.when(!model.mtp_mixers.empty(), "model.hybrid_layer_pattern",
                 "multi-token prediction with a pattern of its own", "leave the part behind the slash out");
    missing.when(scenario.parallel.tensor_model_parallel_size > 1, "parallel.tensor_model_parallel_size",
                 "multi-token prediction under tensor parallelism", "use 1");
    missing.when(scenario.precision != types::Precision::bf16, "model.mtp_num_layers",
                 "multi-token prediction in another precision than bf16", "set mtp_num_layers to 0, or use bf16");
}

/// What the model says of its experts.
void check_experts_of_model(const types::Model& model, Missing& missing) {
    missing.when(model.activation != types::Activation::swiglu, "model.activation",
                 "experts with activation " + std::string{types::name_of(model.activation)}, "use swiglu");
    missing.when(model.add_bias_linear, "model.add_bias_linear", "experts with biases", "set add_bias_linear to false");
    missing.when(model.moe_shared_expert_gate, "model.moe_shared_expert_gate", "moe_shared_expert_gate: true",
                 kMegatron);
    missing.when(model.moe_latent_size > 0, "model.moe_latent_size", "experts of a latent width", kMegatron);
    missing.when(!model.moe_grouped_gemm, "model.moe_grouped_gemm", "moe_grouped_gemm: false",
                 "leave it out: it is about Megatron's layers");
    missing.when(model.moe_expert_capacity_factor && !model.moe_pad_expert_input_to_capacity,
                 "model.moe_expert_capacity_factor", "a capacity of experts without padding",
                 "set moe_pad_expert_input_to_capacity to true, or leave the factor out");
}

/// Kernels move eight elements at a time, keep a token's choices in registers and an expert's count in a block.
void check_expert_sizes(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const auto check = [&](const char* key, std::int64_t size, bool good, const char* hint) {
        missing.when(!good, std::string{"model."} + key, setting(key, size), hint);
    };
    constexpr std::int64_t kMostExperts = 512;
    constexpr std::int64_t kMostChoices = 16;
    check("num_experts", model.num_experts, model.num_experts % 8 == 0 && model.num_experts <= kMostExperts,
          "choose a multiple of 8 up to 512");
    check("moe_router_topk", model.moe_router_topk, model.moe_router_topk <= kMostChoices, "choose at most 16");
    check("moe_ffn_hidden_size", model.moe_ffn_hidden_size, model.moe_ffn_hidden_size % 8 == 0,
          "choose a multiple of 8");
    check("moe_shared_expert_intermediate_size", model.moe_shared_expert_intermediate_size,
          model.moe_shared_expert_intermediate_size % 8 == 0, "choose a multiple of 8");
}

void check_expert_layout(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    missing.when(layout.expert_tensor_parallel_size != 1, "parallel.expert_tensor_parallel_size",
                 setting("expert_tensor_parallel_size", layout.expert_tensor_parallel_size), "use 1");
    constexpr const char* kExpert = "parallel.expert_model_parallel_size";
    constexpr const char* kDivide = "choose a size that divides";
    const auto divides = [](std::int64_t size, std::int64_t whole) { return whole % size == 0; };
    missing.when(!divides(layout.expert_model_parallel_size, scenario.model.num_experts), kExpert,
                 "experts that expert parallelism does not divide", kDivide);
    missing.when(
        !divides(layout.expert_model_parallel_size, layout.tensor_model_parallel_size * layout.data_parallel_size),
        kExpert, "an expert layout that the ranks of a pipeline stage do not divide", kDivide);
    missing.when(layout.tensor_model_parallel_size > 1 && !layout.sequence_parallel, "parallel.sequence_parallel",
                 "experts under tensor parallelism without sequence parallelism", "set sequence_parallel to true");
    missing.when(layout.moe_token_dispatcher_type != types::TokenDispatcher::alltoall,
                 "parallel.moe_token_dispatcher_type",
                 setting("moe_token_dispatcher_type", layout.moe_token_dispatcher_type), "use alltoall");
    missing.when(layout.tensor_model_parallel_size > 1 && scenario.model.moe_shared_expert_intermediate_size > 0,
                 "parallel.tensor_model_parallel_size", "a shared expert under tensor parallelism",
                 "use tensor_model_parallel_size 1");
    missing.when(scenario.batch.routing == types::Routing::recorded, "batch.routing", "routing: recorded",
                 "use balanced or skewed");
}

void check_experts(const Scenario& scenario, Missing& missing) {
    if (!scenario.model.has_experts()) {
        missing.when(scenario.parallel.expert_model_parallel_size > 1, "parallel.expert_model_parallel_size",
                     "expert parallelism of a model without experts", "set it to 1");
        return;
    }
    check_experts_of_model(scenario.model, missing);
    check_expert_sizes(scenario, missing);
    check_expert_layout(scenario, missing);
}

/// What only multi-latent attention has. Its norms are those of the compressed rows, whatever else qk_layernorm says.
void check_latent_attention(const types::Model& model, Missing& missing) {
    missing.when(!model.qk_layernorm, "model.qk_layernorm", "multi-latent attention without qk_layernorm",
                 "set qk_layernorm to true");
    missing.when(model.add_bias_linear, "model.add_bias_linear", "multi-latent attention with biases",
                 "set add_bias_linear to false");
    missing.when(model.position_embedding_type != types::PositionEmbedding::rope, "model.position_embedding_type",
                 "multi-latent attention without rotary positions", "use rope");
    const auto check = [&](const char* key, std::int64_t size, bool good, const char* hint) {
        missing.when(!good, std::string{"model."} + key, setting(key, size), hint);
    };
    constexpr std::int64_t kWidestHead = 256;
    check("q_lora_rank", model.q_lora_rank, model.q_lora_rank % 8 == 0, "choose a multiple of 8");
    check("kv_lora_rank", model.kv_lora_rank, model.kv_lora_rank % 8 == 0, "choose a multiple of 8");
    check("qk_pos_emb_head_dim", model.qk_pos_emb_head_dim, model.qk_pos_emb_head_dim % 16 == 0,
          "choose a multiple of 16");
    check("qk_head_dim", model.qk_head_dim,
          model.qk_head_dim % 8 == 0 && model.qk_head_dim + model.qk_pos_emb_head_dim <= kWidestHead,
          "choose a multiple of 8, with qk_pos_emb_head_dim at most 256");
    check("v_head_dim", model.v_head_dim, model.v_head_dim % 8 == 0 && model.v_head_dim <= kWidestHead,
          "choose a multiple of 8 up to 256");
}

void check_attention(const types::Model& model, Missing& missing) {
    if (model.multi_latent_attention) check_latent_attention(model, missing);
    missing.when(model.window_size.has_value(), "model.window_size", "sliding windows", kMegatron);
    const bool whole_width = model.qk_layernorm && model.qk_norm_span == types::QkNormSpan::width;
    missing.when(whole_width, "model.qk_norm_span", "norms over all heads at once", kMegatron);
    missing.when(model.qk_layernorm && model.normalization != types::Normalization::RMSNorm, "model.normalization",
                 "qk_layernorm with LayerNorm", "use RMSNorm");
    missing.when(model.attention_output_gate, "model.attention_output_gate", "attention_output_gate: true", kMegatron);
    missing.when(model.softmax_type != types::SoftmaxType::vanilla, "model.softmax_type",
                 setting("softmax_type", model.softmax_type), "use vanilla");
    const bool learned = model.position_embedding_type == types::PositionEmbedding::learned_absolute;
    missing.when(learned, "model.position_embedding_type",
                 setting("position_embedding_type", model.position_embedding_type), "use rope or none");
    const bool fits = model.kv_channels % 8 == 0 && model.kv_channels <= 128;
    missing.when(!model.multi_latent_attention && !fits, "model.kv_channels",
                 "heads of size " + std::to_string(model.kv_channels), "use a multiple of 8 up to 128");
    // The kernel turns eight pairs at a time, the halves of a head lying apart.
    const bool rotary = model.position_embedding_type == types::PositionEmbedding::rope;
    missing.when(rotary && fits && !model.multi_latent_attention && model.kv_channels % 16 != 0, "model.kv_channels",
                 "rotary positions in heads of size " + std::to_string(model.kv_channels), "use a multiple of 16");
}

/// Kernels move eight elements at a time, and keep a row of a norm in registers.
void check_widths(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const auto check = [&](const char* key, std::int64_t width) {
        missing.when(width % 8 != 0, std::string{"model."} + key, setting(key, width), "choose a multiple of 8");
    };
    check("hidden_size", model.hidden_size);
    check("ffn_hidden_size", model.ffn_hidden_size);
    constexpr std::int64_t kWidestNorm = 16384;
    missing.when(model.hidden_size > kWidestNorm, "model.hidden_size", setting("hidden_size", model.hidden_size),
                 "choose at most " + std::to_string(kWidestNorm));
    missing.when(padded_vocabulary(scenario) % 8 != 0, "model.make_vocab_size_divisible_by",
                 "a vocabulary of " + std::to_string(padded_vocabulary(scenario)), "pad it to a multiple of 8");
}

void check_rest_of_model(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const bool known = model.activation == types::Activation::swiglu || model.activation == types::Activation::gelu;
    missing.when(!known, std::string{"model."} + std::string{types::name_of(model.activation)},
                 "activation " + std::string{types::name_of(model.activation)}, "use swiglu or GELU");
    missing.when(model.attention_dropout > 0, "model.attention_dropout", "attention_dropout", "set it to 0");
    missing.when(model.hidden_dropout > 0, "model.hidden_dropout", "hidden_dropout", "set it to 0");
}

/// FP8 is that of dense layers on one tensor-parallel rank, with a scale for each tensor; its kernels take 16 elements
/// at a time.
void check_precision(const Scenario& scenario, Missing& missing) {
    const std::string precision = setting("precision", scenario.precision);
    constexpr const char* kBf16 = "use bf16";
    const auto refuse = [&](bool when, const std::string& with) {
        missing.when(when, "precision", precision + with, kBf16);
    };
    if (scenario.precision != types::Precision::fp8_tensorwise) {
        missing.when(scenario.precision != types::Precision::bf16, "precision", precision,
                     "use bf16 or fp8_tensorwise");
        return;
    }
    const types::Model& model = scenario.model;
    refuse(model.has_experts(), " with experts");
    refuse(model.multi_latent_attention, " with multi-latent attention");
    refuse(scenario.parallel.tensor_model_parallel_size > 1, " under tensor parallelism");
    const auto check = [&](const char* path, std::int64_t size, const char* what) {
        missing.when(size % kFp8Multiple != 0, path, precision + " with " + std::to_string(size) + " " + what,
                     "choose a multiple of " + std::to_string(kFp8Multiple));
    };
    check("batch.seq_length", scenario.batch.micro_batch_size * scenario.batch.seq_length, "tokens of a microbatch");
    check("model.hidden_size", model.hidden_size, "elements of a token");
    check("model.ffn_hidden_size", model.ffn_hidden_size, "elements of a token's feed-forward part");
    check("model.num_attention_heads", model.num_attention_heads * model.kv_channels,
          "elements of a token's attention output");
    check("model.num_query_groups", model.num_query_groups * model.kv_channels, "elements of a token's keys");
}

void check_optimizer(const types::Optimizer& optimizer, Missing& missing) {
    const bool known =
        optimizer.optimizer == types::OptimizerKind::none || optimizer.optimizer == types::OptimizerKind::adam;
    missing.when(!known, "optimizer.optimizer", setting("optimizer", optimizer.optimizer), "use adam or none");
    const bool without = optimizer.optimizer == types::OptimizerKind::none && optimizer.use_distributed_optimizer;
    missing.when(without, "optimizer.use_distributed_optimizer", "a distributed optimizer none", "use adam");
    const auto off = [&](const char* key, bool on) {
        missing.when(on, std::string{"optimizer."} + key, std::string{key} + ": true", "leave it out");
    };
    off("overlap_grad_reduce", optimizer.overlap_grad_reduce);
    off("overlap_param_gather", optimizer.overlap_param_gather);
    off("use_precision_aware_optimizer", optimizer.use_precision_aware_optimizer);
    off("fp8_param_gather", optimizer.fp8_param_gather);
    off("optimizer_cpu_offload", optimizer.optimizer_cpu_offload);
    missing.when(optimizer.num_distributed_optimizer_instances != 1, "optimizer.num_distributed_optimizer_instances",
                 setting("num_distributed_optimizer_instances", optimizer.num_distributed_optimizer_instances),
                 "use 1");
    missing.when(!optimizer.gradient_accumulation_fusion, "optimizer.gradient_accumulation_fusion",
                 "gradient_accumulation_fusion: false", "leave it out: GEMMs add to the gradients themselves");
}

/// A rank's shares are as wide as kernels need, and biases count once.
void check_tensor_parallel(const Scenario& scenario, Missing& missing) {
    const std::int64_t ranks = scenario.parallel.tensor_model_parallel_size;
    const types::Model& model = scenario.model;
    if (ranks == 1) return;
    constexpr const char* kTensor = "parallel.tensor_model_parallel_size";
    missing.when(model.add_bias_linear, "model.add_bias_linear", "biases of linears under tensor parallelism",
                 "set add_bias_linear to false");
    missing.when(model.multi_latent_attention, kTensor, "multi-latent attention under tensor parallelism", "use 1");
    const auto divides = [&](std::int64_t size) { return size % ranks == 0; };
    missing.when(!divides(model.num_attention_heads) || !divides(model.num_query_groups), kTensor,
                 "heads that tensor parallelism does not divide", "choose a size that divides heads and groups");
    missing.when(model.ffn_hidden_size % (8 * ranks) != 0, kTensor,
                 "a feed-forward width whose share is no multiple of 8", "choose a smaller size");
    missing.when(padded_vocabulary(scenario) % (8 * ranks) != 0, "model.make_vocab_size_divisible_by",
                 "a vocabulary whose share is no multiple of 8", "choose a multiple of 8");
    missing.when(scenario.parallel.sequence_parallel && !divides(scenario.batch.seq_length), "batch.seq_length",
                 "a sequence that tensor parallelism does not divide", "choose a multiple of the ranks");
}

void check_recomputation(const types::Recompute& recompute, Missing& missing) {
    using types::RecomputeModule;
    for (const RecomputeModule module : recompute.recompute_modules) {
        const bool known = module == RecomputeModule::core_attn || module == RecomputeModule::layernorm ||
                           module == RecomputeModule::mlp || module == RecomputeModule::moe ||
                           module == RecomputeModule::moe_act || module == RecomputeModule::shared_experts ||
                           module == RecomputeModule::mla_up_proj;
        missing.when(recompute.selects(module) && !known, "recompute.recompute_modules",
                     "recomputation of " + std::string{types::name_of(module)}, "leave the module out");
    }
}

}  // namespace

void check_stowage_layers(const Scenario& scenario, Missing& missing) {
    check_parallel(scenario.parallel, missing);
    check_tensor_parallel(scenario, missing);
    check_kind_of_model(scenario.model, missing);
    check_prediction(scenario, missing);
    check_experts(scenario, missing);
    check_attention(scenario.model, missing);
    check_widths(scenario, missing);
    check_rest_of_model(scenario, missing);
    check_precision(scenario, missing);
    check_optimizer(scenario.optimizer, missing);
    check_recomputation(scenario.recompute, missing);
}

}  // namespace stowage::layers
