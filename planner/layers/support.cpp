#include "planner/layers/support.hpp"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "planner/layers/attention_backend.hpp"
#include "planner/layers/missing_features.hpp"
#include "planner/layers/states_formats.hpp"
#include "planner/layers/stowage/stowage_support.hpp"
#include "planner/layers/support_graphs.hpp"
#include "scenarios/types/error.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::layers {
namespace {

using types::Scenario;

constexpr const char* kTensor = "parallel.tensor_model_parallel_size";
constexpr const char* kExpert = "parallel.expert_model_parallel_size";
constexpr const char* kDivide = "choose a size that divides";

bool divides(std::int64_t part, std::int64_t whole) { return part > 0 && whole % part == 0; }

/// A stage that neither embeds, nor has layers, nor computes the loss.
bool has_empty_stage(const types::StageTable& table) {
    for (const auto& row : table)
        for (const types::StageContents& stage : row)
            if (!stage.embedding && !stage.loss && stage.layers + stage.mtp_layers == 0) return true;
    return false;
}

/// Whether some stage with multi-token prediction does not compute the loss.
bool predicts_elsewhere(const types::StageTable& table) {
    for (const auto& row : table)
        for (const types::StageContents& stage : row)
            if (stage.mtp_layers > 0 && !stage.loss) return true;
    return false;
}

/// Whether a multi-token-prediction layer would open an offload group twice.
bool repeats_groups(const types::Model& model) {
    const auto& mixers = model.mtp_mixers;
    const auto& halves = model.mtp_feed_forward;
    return std::count(mixers.begin(), mixers.end(), types::Mixer::attention) > 1 ||
           std::count(halves.begin(), halves.end(), types::FeedForward::moe) > 1;
}

void check_mtp(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    constexpr const char* kPath = "model.mtp_num_layers";
    if (model.mtp_num_layers == 0) return;
    missing.when(model.mtp_num_layers > 1, kPath, setting("mtp_num_layers", model.mtp_num_layers),
                 "one multi-token-prediction layer is planned");
    missing.when(repeats_groups(model), "model.hybrid_layer_pattern",
                 "multi-token prediction with several attention or expert layers", "give it one of each at most");
    missing.when(!model.untie_embeddings_and_output_weights && scenario.parallel.pipeline_model_parallel_size > 1,
                 kPath, "multi-token prediction with tied embeddings over several pipeline stages",
                 "untie them, or use one stage");
    missing.when(scenario.recompute.recompute_granularity == types::RecomputeGranularity::full, kPath,
                 "multi-token prediction under full recomputation", "recompute selectively");
    const auto placed = types::stage_table(scenario.parallel, model);
    const auto* table = std::get_if<types::StageTable>(&placed);
    missing.when(table != nullptr && predicts_elsewhere(*table), "parallel.pipeline_model_parallel_layout",
                 "multi-token prediction on another stage than the loss", "put m and L on the same stage");
}

/// What Megatron demands of an interleaved schedule. Source: schedules.py,
/// forward_backward_pipelining_with_interleaving.
void check_interleaving(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    if (layout.num_virtual_stages_per_pipeline_rank < 2) return;
    const std::int64_t ranks = layout.pipeline_model_parallel_size;
    const std::int64_t group = layout.microbatch_group_size();
    missing.when(ranks < 2, "parallel.num_virtual_stages_per_pipeline_rank", "virtual stages on one pipeline rank",
                 "interleaving needs pipeline_model_parallel_size of 2 or more");
    missing.when(group < ranks || group > scenario.microbatches(),
                 "parallel.microbatch_group_size_per_virtual_pipeline_stage",
                 "a microbatch group of " + std::to_string(group) + " for " + std::to_string(ranks) +
                     " pipeline ranks and " + std::to_string(scenario.microbatches()) + " microbatches",
                 "Megatron interleaves groups of at least the pipeline's size and at most the microbatches");
    const std::int64_t rest = scenario.microbatches() % std::max<std::int64_t>(group, 1);
    missing.when(
        rest > 0 && rest < ranks, "batch.global_batch_size",
        "a last microbatch group of " + std::to_string(rest) + " for " + std::to_string(ranks) + " pipeline ranks",
        "choose microbatches whose rest by the group is 0 or at least the pipeline's size");
}

void check_layout(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    check_interleaving(scenario, missing);
    const auto placed = types::stage_table(layout, scenario.model);
    const auto* no = std::get_if<types::NoStages>(&placed);
    missing.when(no != nullptr, "parallel.pipeline_model_parallel_size", no != nullptr ? no->reason : "",
                 "choose a size that divides num_layers, or give the first and last stage");
    missing.when(no == nullptr && has_empty_stage(std::get<types::StageTable>(placed)),
                 "parallel.pipeline_model_parallel_size", "a stage without anything to run",
                 "use fewer stages, or fewer layers on the first and last");
}

/// A program holds an entry for each layer of each microbatch: 2 million took half a minute and 1.3 GB, 10 million
/// ended the memory of the machine.
void check_size(const Scenario& scenario, Missing& missing) {
    constexpr std::int64_t kMostLayerRuns = 2'000'000;
    const std::int64_t runs = scenario.model.num_layers * scenario.microbatches();
    missing.when(runs > kMostLayerRuns, "batch.global_batch_size",
                 "a step of " + std::to_string(runs) + " layers over all microbatches",
                 "choose fewer microbatches: " + std::to_string(kMostLayerRuns) + " are simulated at most");
}

void check_shards(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    missing.when(!divides(tensor, model.num_attention_heads), kTensor,
                 "attention heads that tensor parallelism does not divide", kDivide);
    missing.when(!divides(tensor, model.num_query_groups), kTensor,
                 "query groups that tensor parallelism does not divide", kDivide);
    missing.when(!divides(tensor, model.ffn_hidden_size) && !(model.has_experts() && model.moe_layer_freq.empty()),
                 kTensor, "a feed-forward width that tensor parallelism does not divide", kDivide);
    missing.when(!divides(scenario.parallel.sequence_shards(), scenario.batch.seq_length), "batch.seq_length",
                 "a sequence that sequence parallelism does not divide",
                 "choose a multiple of tensor_model_parallel_size");
}

/// What Transformer Engine's context-parallel attention does not take, or what is not described here.
void check_context(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    const types::Model& model = scenario.model;
    const std::int64_t ranks = layout.context_parallel_size;
    if (ranks == 1) return;
    const char* const kType = "parallel.cp_comm_type";
    const bool ring = layout.cp_comm_type == types::ContextCommunication::p2p;
    const bool exchange = layout.cp_comm_type == types::ContextCommunication::a2a;
    missing.when(layout.cp_comm_type == types::ContextCommunication::a2a_p2p, kType,
                 setting("cp_comm_type", layout.cp_comm_type), "use p2p, allgather or a2a");
    missing.when(!divides(2 * ranks * layout.sequence_shards(), scenario.batch.seq_length), "batch.seq_length",
                 "a sequence that context parallelism does not divide into two chunks a rank",
                 "choose a multiple of twice the context-parallel ranks, times the tensor ranks under sequence "
                 "parallelism");
    missing.when(model.multi_latent_attention && !ring, kType,
                 "multi-latent attention with " + setting("cp_comm_type", layout.cp_comm_type), "use p2p");
    missing.when(model.window_size.has_value() && ring, kType, "sliding windows with cp_comm_type: p2p",
                 "use allgather or a2a");
    missing.when(model.softmax_type != types::SoftmaxType::vanilla && !exchange, kType,
                 setting("softmax_type", model.softmax_type) + " with " + setting("cp_comm_type", layout.cp_comm_type),
                 "use a2a");
    missing.when(exchange && !divides(ranks * layout.tensor_model_parallel_size, model.num_query_groups), kType,
                 "query groups that tensor and context parallelism with a2a do not divide", "use p2p");
}

/// Of Transformer Engine's three kinds of attention, the unfused one is planned in its plain form.
void check_attention_backend(const Scenario& scenario, Missing& missing) {
    constexpr const char* kPath = "env.NVTE_FUSED_ATTN";
    const AttentionBackend backend = attention_backend(scenario);
    const bool unfused = backend == AttentionBackend::unfused;
    missing.when(unfused && scenario.parallel.context_parallel_size > 1, kPath,
                 "unfused attention over context-parallel ranks", "leave the variable out");
    missing.when(unfused && scenario.model.window_size.has_value(), kPath, "unfused attention with sliding windows",
                 "leave the variable out");
    missing.when(unfused && scenario.model.softmax_type != types::SoftmaxType::vanilla, kPath,
                 "unfused attention with " + setting("softmax_type", scenario.model.softmax_type),
                 "leave the variable out");
    missing.when(backend == AttentionBackend::flash && scenario.model.multi_latent_attention, kPath,
                 "flash attention of multi-latent attention", "leave the variable out");
}

/// What Megatron's own layers, without Transformer Engine, are described for.
void check_local_layers(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    constexpr const char* kPath = "model.transformer_impl";
    if (model.transformer_impl != types::TransformerImpl::local) {
        missing.when(!model.masked_softmax_fusion, "model.masked_softmax_fusion",
                     "masked_softmax_fusion: false with Transformer Engine's layers", "leave it out");
        return;
    }
    const bool sixteen_bits =
        scenario.precision == types::Precision::bf16 || scenario.precision == types::Precision::fp16;
    missing.when(!sixteen_bits, kPath, "local layers with " + setting("precision", scenario.precision),
                 "use transformer_engine");
    missing.when(model.multi_latent_attention, kPath, "local layers with multi-latent attention",
                 "use transformer_engine");
    missing.when(model.is_hybrid(), kPath, "local layers in a hybrid model", "use transformer_engine");
    missing.when(model.has_experts() && model.moe_grouped_gemm, kPath, "local layers with moe_grouped_gemm",
                 "set moe_grouped_gemm to false, or use transformer_engine");
    missing.when(model.normalization == types::Normalization::RMSNorm, kPath, "local layers with RMSNorm",
                 "use transformer_engine");
}

void check_model(const Scenario& scenario, Missing& missing) {
    const bool unknown = scenario.precision == types::Precision::fp32 || scenario.precision == types::Precision::nvfp4;
    missing.when(unknown, "precision", setting("precision", scenario.precision), "use bf16, fp16 or an FP8 recipe");
    missing.when(scenario.model.vocab_size == 0, "model.vocab_size", "a model without vocabulary",
                 "give its tokens; layers without embedding and output layer are for implementation: stowage");
    check_attention_backend(scenario, missing);
    check_local_layers(scenario, missing);
    missing.when(scenario.parallel.defer_embedding_wgrad_compute &&
                     scenario.cuda_graph.cuda_graph_impl != types::CudaGraphImpl::none,
                 "parallel.defer_embedding_wgrad_compute", "defer_embedding_wgrad_compute beside CUDA graphs",
                 "leave one of them out");
}

/// What Transformer Engine's FP8 linears ask of their operands. Source: Transformer Engine, pytorch/utils.py
/// (assert_dim_for_fp8_exec), pytorch/csrc/quantizer.cpp (MXFP8Quantizer).
void check_fp8_operands(const Scenario& scenario, Missing& missing) {
    if (!is_fp8(scenario.precision)) return;
    const types::Model& model = scenario.model;
    const types::ParallelLayout& layout = scenario.parallel;
    const bool microscaled = scenario.precision == types::Precision::mxfp8;
    const auto check = [&](const char* path, const std::string& what, std::int64_t size, std::int64_t unit) {
        missing.when(size % unit != 0, path,
                     setting("precision", scenario.precision) + " with " + std::to_string(size) + " " + what,
                     "choose a multiple of " + std::to_string(unit) + ", as Transformer Engine demands");
    };
    const std::int64_t width = microscaled ? 32 : 16;
    check("batch.seq_length", "tokens of a microbatch on a rank",
          scenario.batch.micro_batch_size * scenario.batch.seq_length /
              (layout.context_parallel_size * layout.sequence_shards()),
          microscaled ? 32 : 8);
    check("model.hidden_size", "elements of a token", model.hidden_size, width);
    const std::int64_t value_size = model.multi_latent_attention ? model.v_head_dim : model.kv_channels;
    check("model.num_attention_heads", "elements of a token's attention output on a rank",
          model.num_attention_heads * value_size / layout.tensor_model_parallel_size, width);
    if (!model.has_experts() || !model.moe_layer_freq.empty())
        check("model.ffn_hidden_size", "elements of a token's feed-forward part on a rank",
              model.ffn_hidden_size / layout.tensor_model_parallel_size, width);
    if (model.has_experts())
        check("model.moe_ffn_hidden_size", "elements of a token in an expert's part on a rank",
              model.moe_ffn_hidden_size / layout.expert_tensor_parallel_size, width);
}

void check_shared_experts(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const types::ParallelLayout& layout = scenario.parallel;
    const bool overlaps = layout.moe_shared_expert_overlap;
    const bool recomputes = scenario.recompute.selects(types::RecomputeModule::shared_experts);
    if (model.moe_shared_expert_intermediate_size == 0) {
        missing.when(model.moe_shared_expert_gate, "model.moe_shared_expert_gate",
                     "a gate of a shared expert that is not there", "give the shared expert a size");
        missing.when(overlaps, "parallel.moe_shared_expert_overlap", "the overlap of a shared expert that is not there",
                     "leave it out");
        missing.when(recomputes, "recompute.recompute_modules", "shared_experts recomputed in a model without them",
                     "leave the module out");
        return;
    }
    missing.when(!divides(layout.tensor_model_parallel_size, model.moe_shared_expert_intermediate_size), kTensor,
                 "a shared expert's width that tensor parallelism does not divide", kDivide);
    missing.when(model.add_bias_linear, "model.add_bias_linear", "biases beside a shared expert",
                 "set it to false, as Megatron demands");
    missing.when(overlaps && layout.moe_token_dispatcher_type != types::TokenDispatcher::alltoall,
                 "parallel.moe_shared_expert_overlap",
                 "moe_shared_expert_overlap with another dispatcher than alltoall",
                 "use alltoall, or leave the overlap out");
    missing.when(overlaps && model.moe_latent_size > 0, "parallel.moe_shared_expert_overlap",
                 "moe_shared_expert_overlap with latent experts", "leave the overlap out");
    missing.when(overlaps && recomputes, "recompute.recompute_modules", "shared_experts recomputed while overlapped",
                 "leave one of them out");
}

void check_dispatch(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const types::ParallelLayout& layout = scenario.parallel;
    const types::TokenDispatcher dispatcher = layout.moe_token_dispatcher_type;
    const bool alone = layout.expert_model_parallel_size * layout.expert_tensor_parallel_size == 1;
    missing.when(dispatcher == types::TokenDispatcher::flex && alone, "parallel.moe_token_dispatcher_type",
                 "moe_token_dispatcher_type: flex with one expert rank", "use alltoall");
    missing.when(model.moe_pad_expert_input_to_capacity && !model.moe_expert_capacity_factor,
                 "model.moe_pad_expert_input_to_capacity", "padding to a capacity without a capacity factor",
                 "give moe_expert_capacity_factor");
    missing.when(model.moe_expert_capacity_factor && dispatcher != types::TokenDispatcher::alltoall,
                 "model.moe_expert_capacity_factor", "a capacity factor with another dispatcher than alltoall",
                 "use alltoall");
}

void check_experts(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    if (!model.has_experts()) {
        missing.when(scenario.parallel.expert_model_parallel_size > 1, kExpert,
                     "expert parallelism of a model without experts", "set it to 1");
        return;
    }
    const types::ParallelLayout& layout = scenario.parallel;
    missing.when(scenario.batch.routing == types::Routing::recorded, "batch.routing", "routing: recorded",
                 "use balanced, or skewed with routing_skew");
    missing.when(layout.tensor_model_parallel_size > 1 && !layout.sequence_parallel, "parallel.sequence_parallel",
                 "experts under tensor parallelism without sequence parallelism",
                 "set sequence_parallel to true, as Megatron demands");
    missing.when(!divides(layout.expert_model_parallel_size, model.num_experts), kExpert,
                 "experts that expert parallelism does not divide", kDivide);
    missing.when(!divides(layout.expert_tensor_parallel_size, model.moe_ffn_hidden_size),
                 "parallel.expert_tensor_parallel_size",
                 "an expert's width that expert tensor parallelism does not divide", kDivide);
    check_shared_experts(scenario, missing);
    check_dispatch(scenario, missing);
    const std::int64_t replicas =
        layout.tensor_model_parallel_size * layout.context_parallel_size * layout.data_parallel_size;
    missing.when(!divides(layout.expert_tensor_parallel_size * layout.expert_model_parallel_size, replicas), kExpert,
                 "an expert layout that the ranks of a pipeline stage do not divide", kDivide);
}

void check_full_recomputation(const Scenario& scenario, Missing& missing) {
    const types::Recompute& recompute = scenario.recompute;
    if (recompute.recompute_granularity != types::RecomputeGranularity::full) return;
    missing.when(recompute.recompute_method == types::RecomputeMethod::none, "recompute.recompute_method",
                 "full recomputation without a method", "give recompute_method: uniform or block");
    missing.when(recompute.recompute_num_layers.value_or(0) < 1, "recompute.recompute_num_layers",
                 "full recomputation without a number of layers", "give recompute_num_layers, at least 1");
    // The first forward runs without autograd, so no group holds anything, and the second one runs inside the backward,
    // where Megatron's manager has already gone on: nothing could move.
    const auto& modules = scenario.offload.offload_modules;
    missing.when(!modules || !modules->empty(), "offload.offload_modules", "offloading under full recomputation",
                 "set offload_modules to [], or recompute_granularity to selective");
}

bool has_mixer(const types::Model& model, types::Mixer mixer) {
    const auto& layers = model.mixers;
    const auto& predictions = model.mtp_mixers;
    return std::find(layers.begin(), layers.end(), mixer) != layers.end() ||
           std::find(predictions.begin(), predictions.end(), mixer) != predictions.end();
}

/// What Mamba mixers ask of tensor and context parallelism. Source: Megatron-LM, core/ssm/mamba_mixer.py,
/// mamba_context_parallel.py.
void check_mamba(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const std::int64_t tensor = scenario.parallel.tensor_model_parallel_size;
    const std::int64_t context = scenario.parallel.context_parallel_size;
    missing.when(!divides(tensor * context, model.mamba_num_heads), kTensor,
                 "Mamba heads that tensor and context parallelism do not divide", kDivide);
    missing.when(!divides(tensor, model.mamba_num_groups), kTensor,
                 "Mamba groups that tensor parallelism does not divide", kDivide);
    if (divides(tensor, model.mamba_num_groups)) {
        const std::int64_t groups = model.mamba_num_groups / tensor;
        missing.when(!divides(context, groups) && !divides(groups, context), "parallel.context_parallel_size",
                     "Mamba groups of a rank that neither divide nor are divided by context parallelism", kDivide);
    }
    missing.when(!divides(model.mamba_num_groups, model.mamba_num_heads), "model.mamba_num_groups",
                 "Mamba heads that the groups do not divide", kDivide);
    const std::int64_t packed =
        model.mamba_num_heads * (2 * model.mamba_head_dim + 1) + 2 * model.mamba_num_groups * model.mamba_state_dim;
    missing.when(
        is_fp8(scenario.precision) && !divides(16, packed), "precision",
        "Mamba input projections of " + std::to_string(packed) + " columns in FP8, which takes multiples of 16",
        "use bf16");
    missing.when(model.add_bias_linear, "model.add_bias_linear", "biases beside Mamba layers",
                 "set it to false: Megatron's Mamba mixer has none");
    missing.when(!divides(128, scenario.batch.seq_length), "batch.seq_length",
                 "a sequence that is no multiple of the 128 tokens of a Mamba chunk", "choose a multiple of 128");
}

/// The same for gated delta nets. Source: Megatron-LM, core/ssm/gated_delta_net.py.
void check_delta_nets(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    const std::int64_t ranks = scenario.parallel.tensor_model_parallel_size * scenario.parallel.context_parallel_size;
    missing.when(!divides(ranks, model.linear_num_key_heads) || !divides(ranks, model.linear_num_value_heads), kTensor,
                 "linear-attention heads that tensor and context parallelism do not divide", kDivide);
    missing.when(!divides(model.linear_num_key_heads, model.linear_num_value_heads), "model.linear_num_key_heads",
                 "linear-attention value heads that the key heads do not divide", kDivide);
    const std::int64_t unit = scenario.precision == types::Precision::mxfp8 ? 32 : 16;
    const std::int64_t packed = 2 * model.linear_num_key_heads * model.linear_key_head_dim +
                                2 * model.linear_num_value_heads * (model.linear_value_head_dim + 1);
    missing.when(is_fp8(scenario.precision) && !divides(unit, packed), "precision",
                 "linear-attention input projections of " + std::to_string(packed) +
                     " columns in FP8, which takes multiples of " + std::to_string(unit),
                 "use bf16");
    missing.when(model.add_bias_linear, "model.add_bias_linear", "biases beside gated delta nets",
                 "set it to false: Megatron's have none");
    missing.when(!divides(64, scenario.batch.seq_length), "batch.seq_length",
                 "a sequence that is no multiple of the 64 tokens of a delta-rule chunk", "choose a multiple of 64");
}

bool has_half_layers(const types::Model& model) {
    const auto& halves = model.feed_forward;
    return std::find(model.mixers.begin(), model.mixers.end(), types::Mixer::none) != model.mixers.end() ||
           std::find(halves.begin(), halves.end(), types::FeedForward::none) != halves.end();
}

void check_hybrid(const Scenario& scenario, Missing& missing) {
    const types::Model& model = scenario.model;
    missing.when(has_half_layers(model) && scenario.parallel.overlap_moe_expert_parallel_comm,
                 "parallel.overlap_moe_expert_parallel_comm",
                 "overlap_moe_expert_parallel_comm in a model whose layers have one half only", "leave it out");
    if (has_mixer(model, types::Mixer::mamba)) check_mamba(scenario, missing);
    const bool delta = has_mixer(model, types::Mixer::gated_delta_net);
    if (delta) check_delta_nets(scenario, missing);
    missing.when(!delta && scenario.recompute.selects(types::RecomputeModule::gdn_norm_out),
                 "recompute.recompute_modules", "gdn_norm_out recomputed in a model without gated delta nets",
                 "leave the module out");
}

/// What Megatron demands of forwards beside backwards; the rules say why (G14, G15).
void check_overlap(const Scenario& scenario, Missing& missing) {
    const types::ParallelLayout& layout = scenario.parallel;
    constexpr const char* kPath = "parallel.overlap_moe_expert_parallel_comm";
    const std::string feature = "overlap_moe_expert_parallel_comm ";
    const bool overlaps = layout.overlap_moe_expert_parallel_comm;
    missing.when(layout.delay_wgrad_compute && !overlaps, "parallel.delay_wgrad_compute",
                 "delay_wgrad_compute without overlap_moe_expert_parallel_comm", "leave it out");
    if (!overlaps) return;
    missing.when(layout.pipeline_model_parallel_size > 1 && layout.num_virtual_stages_per_pipeline_rank == 1, kPath,
                 feature + "in a pipeline without virtual stages", "interleave the stages");
    missing.when(layout.expert_model_parallel_size == 1, kPath, feature + "on one rank of experts", "leave it out");
    missing.when(layout.moe_token_dispatcher_type == types::TokenDispatcher::allgather, kPath,
                 feature + "with the allgather dispatcher", "use alltoall or flex");
    missing.when(layout.moe_shared_expert_overlap, kPath, feature + "beside moe_shared_expert_overlap",
                 "leave out one of them");
    const types::Recompute& recompute = scenario.recompute;
    missing.when(recompute.recompute_granularity == types::RecomputeGranularity::full ||
                     recompute.recompute_method != types::RecomputeMethod::none || recompute.recompute_num_layers ||
                     recompute.selects(types::RecomputeModule::moe),
                 kPath, feature + "with recomputation of whole layers or of moe", "recompute other modules");
}

/// Modules whose layers can run their forward again.
bool recomputable(types::RecomputeModule module) {
    using types::RecomputeModule;
    switch (module) {
        case RecomputeModule::core_attn:
        case RecomputeModule::mla_up_proj:
        case RecomputeModule::moe_act:
        case RecomputeModule::layernorm:
        case RecomputeModule::mlp:
        case RecomputeModule::moe:
        case RecomputeModule::gdn_norm_out:
        case RecomputeModule::shared_experts: return true;
        default: return false;
    }
}

void check_runtime(const Scenario& scenario, Missing& missing) {
    const types::Recompute& recompute = scenario.recompute;
    for (const types::RecomputeModule module : recompute.recompute_modules)
        missing.when(recompute.selects(module) && !recomputable(module), "recompute.recompute_modules",
                     "recomputation of " + std::string{types::name_of(module)}, "leave the module out");
    check_full_recomputation(scenario, missing);
    check_graphs(scenario, missing);
}

/// Types of the precision-aware optimizer that Transformer Engine's Adam takes.
void check_optimizer_types(const types::Optimizer& optimizer, Missing& missing) {
    using types::DataType;
    const auto check = [&](const char* key, DataType type, std::initializer_list<DataType> allowed) {
        const std::string path = std::string{"optimizer."} + key;
        const bool changed = type != DataType::fp32;
        missing.when(changed && !optimizer.use_precision_aware_optimizer, path,
                     setting(key, type) + " without use_precision_aware_optimizer",
                     "set use_precision_aware_optimizer to true, as Megatron demands");
        missing.when(changed && optimizer.optimizer_cpu_offload, path,
                     setting(key, type) + " beside optimizer_cpu_offload, which keeps fp32 whatever is asked for",
                     "use fp32");
        missing.when(std::find(allowed.begin(), allowed.end(), type) == allowed.end(), path, setting(key, type),
                     "use fp32");
    };
    check("main_params_dtype", optimizer.main_params_dtype, {DataType::fp32, DataType::fp16});
    check("exp_avg_dtype", optimizer.exp_avg_dtype, {DataType::fp32, DataType::fp16, DataType::bf16, DataType::fp8});
    check("exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype,
          {DataType::fp32, DataType::fp16, DataType::bf16, DataType::fp8});
    // Gradients are summed on the device in that type with states on the host too.
    missing.when(optimizer.main_grads_dtype != DataType::fp32 && !optimizer.use_precision_aware_optimizer,
                 "optimizer.main_grads_dtype",
                 setting("main_grads_dtype", optimizer.main_grads_dtype) + " without use_precision_aware_optimizer",
                 "set use_precision_aware_optimizer to true, as Megatron demands");
    missing.when(optimizer.main_grads_dtype != DataType::fp32 && optimizer.main_grads_dtype != DataType::bf16,
                 "optimizer.main_grads_dtype", setting("main_grads_dtype", optimizer.main_grads_dtype),
                 "use fp32 or bf16");
}

void check_host_optimizer(const Scenario& scenario, Missing& missing) {
    const types::Optimizer& optimizer = scenario.optimizer;
    if (!optimizer.optimizer_cpu_offload) return;
    constexpr const char* kPath = "optimizer.optimizer_cpu_offload";
    missing.when(!optimizer.use_precision_aware_optimizer, kPath,
                 "optimizer_cpu_offload without use_precision_aware_optimizer",
                 "set use_precision_aware_optimizer to true, as Megatron demands");
    missing.when(scenario.precision == types::Precision::fp16, kPath,
                 "optimizer_cpu_offload with " + setting("precision", scenario.precision), "use bf16");
    missing.when(optimizer.fp8_param_gather, kPath, "optimizer_cpu_offload with fp8_param_gather",
                 "leave fp8_param_gather out");
    missing.when(optimizer.optimizer != types::OptimizerKind::adam, kPath,
                 "optimizer_cpu_offload with " + setting("optimizer", optimizer.optimizer), "use adam");
    missing.when(scenario.hardware.node.host.memory_bandwidth.rate <= 0, kPath,
                 "optimizer_cpu_offload on a machine whose host memory rate is not known",
                 "give host.memory_bandwidth_gb_per_s in the hardware file: Adam on the host is bound by it");
}

void check_optimizer(const Scenario& scenario, Missing& missing) {
    const types::Optimizer& optimizer = scenario.optimizer;
    const types::ParallelLayout& layout = scenario.parallel;
    const bool distributed = optimizer.use_distributed_optimizer;
    missing.when(optimizer.optimizer == types::OptimizerKind::muon, "optimizer.optimizer",
                 setting("optimizer", optimizer.optimizer), "use adam");
    missing.when(optimizer.optimizer == types::OptimizerKind::none, "optimizer.optimizer",
                 setting("optimizer", optimizer.optimizer), "use adam or sgd; none is for implementation: stowage");
    missing.when(optimizer.optimizer == types::OptimizerKind::sgd && distributed, "optimizer.optimizer",
                 "optimizer: sgd with use_distributed_optimizer", "Megatron's takes adam only");
    const std::int64_t instances = optimizer.num_distributed_optimizer_instances;
    constexpr const char* kInstances = "optimizer.num_distributed_optimizer_instances";
    missing.when(instances > 1 && !distributed, kInstances,
                 "several distributed-optimizer instances without use_distributed_optimizer",
                 "set use_distributed_optimizer to true");
    missing.when(instances < 1 || !divides(instances, layout.dense_replicas()) ||
                     (scenario.model.has_experts() && !divides(instances, layout.expert_replicas())),
                 kInstances, "replicas that the distributed-optimizer instances do not divide", kDivide);
    missing.when(optimizer.use_precision_aware_optimizer && !distributed, "optimizer.use_precision_aware_optimizer",
                 "use_precision_aware_optimizer without use_distributed_optimizer",
                 "set use_distributed_optimizer to true, as Megatron demands");
    missing.when(optimizer.grad_reduce_in_bf16 && scenario.precision == types::Precision::fp16,
                 "optimizer.grad_reduce_in_bf16", "grad_reduce_in_bf16 with precision: fp16",
                 "leave it out: fp16 sums gradients in fp16");
    missing.when(optimizer.fp8_param_gather && !is_fp8(scenario.precision), "optimizer.fp8_param_gather",
                 "fp8_param_gather with " + setting("precision", scenario.precision), "use an FP8 precision");
    missing.when(optimizer.fp8_param_gather && !distributed, "optimizer.fp8_param_gather",
                 "fp8_param_gather without use_distributed_optimizer", "set use_distributed_optimizer to true");
    check_optimizer_types(optimizer, missing);
    check_host_optimizer(scenario, missing);
}

}  // namespace

std::vector<Unsupported> unsupported_features(const Scenario& scenario) {
    Missing missing;
    check_layout(scenario, missing);
    check_size(scenario, missing);
    if (scenario.implementation == types::Implementation::stowage) {
        check_stowage_layers(scenario, missing);
        check_mtp(scenario, missing);
        check_full_recomputation(scenario, missing);
        check_graphs(scenario, missing);
        return missing.take();
    }
    check_shards(scenario, missing);
    check_context(scenario, missing);
    check_model(scenario, missing);
    check_fp8_operands(scenario, missing);
    check_experts(scenario, missing);
    check_hybrid(scenario, missing);
    check_overlap(scenario, missing);
    check_runtime(scenario, missing);
    check_optimizer(scenario, missing);
    check_mtp(scenario, missing);
    return missing.take();
}

void require_supported(const Scenario& scenario) {
    const std::vector<Unsupported> features = unsupported_features(scenario);
    if (features.empty()) return;
    std::string text =
        "not supported by the layers of implementation " + std::string{types::name_of(scenario.implementation)} + ":";
    for (const Unsupported& unsupported : features) text += "\n  - " + unsupported.feature;
    throw types::UnsupportedError(text);
}

}  // namespace stowage::layers
