// What each rule looks at, in the words of the scenario; the rules themselves say it in code.

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "planner/rules/rule_pages.hpp"

namespace stowage::rules {
namespace {

using types::RuleSet;

/// `set` tells entries of one id apart: one of the entry's rule sets.
struct Condition {
    std::string_view id;
    RuleSet set;
    std::string_view text;
};

// "Graphs are of single layers": cuda_graph_impl is local or transformer_engine.
constexpr RuleSet kMain = RuleSet::main_2026_08;

constexpr std::array kConditions = {
    Condition{"O3", kMain, "offload_modules has fused_group_mlp before core-0.19, or gdp_qkv before main-2026-08."},
    Condition{"O4", kMain, "The implementation is megatron, and offload_modules has attn_proj and not core_attn."},
    Condition{"O5", kMain, "offload_modules has gdp_qkv and recompute_modules has gdp_in_proj."},
    Condition{"O6", kMain,
              "offload_modules has expert_fc1, moe_act or fused_group_mlp, and recompute_modules has moe."},
    Condition{"O7", kMain, "Something is offloaded and min_offloaded_tensor_size is below 0."},
    Condition{"O8", kMain, "Something is offloaded and activation_offload_fraction is not from 0 to 1."},
    Condition{"O9", kMain, "Something is offloaded and delta_offload_bytes_across_pp_ranks is below 0."},
    Condition{"O10", kMain, "offload_modules has fused_group_mlp; the op fuser is off and no scenario switches it on."},
    Condition{"O11", kMain, "offload_modules has fused_group_mlp beside expert_fc1 or moe_act."},
    Condition{"O12", kMain, "Something is offloaded and recompute_modules has mhc."},
    Condition{"O12", RuleSet::dev, "offload_modules has attn_norm or mlp_norm, and recompute_modules has mhc."},
    Condition{"O17", kMain,
              "Something is offloaded, the implementation is megatron, and env, where there is one, does not set "
              "NVTE_CPU_OFFLOAD_V1 to 1."},
    Condition{"O18", RuleSet::dev,
              "Something is offloaded, fine_grained_offloading_max_inflight_offloads is below 0, and cuda_graph_impl "
              "is not full_iteration (X7)."},
    Condition{"O18", kMain,
              "Something is offloaded, fine_grained_offloading_max_inflight_offloads is below 0, and cuda_graph_impl "
              "is not full_iteration (X7)."},
    Condition{"O19", RuleSet::core_0_18, "delay_offload_until_cuda_graph is true."},
    Condition{"O19", kMain,
              "delay_offload_until_cuda_graph is true, and nothing is offloaded or cuda_graph_impl is not "
              "transformer_engine."},
    Condition{"D6", kMain, "offload_modules has mlp_norm, and the model has dense layers beside those with experts."},
    Condition{"D10", kMain, "offload_modules has a module that no layer of the model has on its own."},

    Condition{"G2", kMain, "cuda_graph_impl is full_iteration and cuda_graph_modules is not empty."},
    Condition{"G6", kMain, "cuda_graph_impl is local, and only one of moe_router and moe_preprocess is listed."},
    Condition{"G7", kMain,
              "Graphs are of single layers, and cuda_graph_modules has moe beside moe_router (or, if they are local, "
              "moe_preprocess)."},
    Condition{"G8", kMain,
              "cuda_graph_impl is transformer_engine, and cuda_graph_modules has moe_preprocess and not moe_router."},
    Condition{"G9", kMain,
              "Graphs are of single layers, cuda_graph_modules has moe, moe_router or moe_preprocess, and num_experts "
              "is below 2."},
    Condition{"G10", kMain,
              "Graphs are of single layers, cuda_graph_modules has mlp, and every layer of the model has experts."},
    Condition{"G11", kMain,
              "Graphs are of single layers, cuda_graph_modules has moe, and the experts do not drop and pad."},
    Condition{"G12", kMain,
              "Graphs are of single layers, cuda_graph_modules has moe_preprocess, the dispatcher is alltoall, and "
              "moe_expert_capacity_factor is given without moe_pad_expert_input_to_capacity."},
    Condition{"G13", kMain,
              "overlap_moe_expert_parallel_comm is true, cuda_graph_impl is transformer_engine, and "
              "cuda_graph_modules has moe or mlp."},
    Condition{"G14", kMain,
              "overlap_moe_expert_parallel_comm is true with one of: a pipeline without virtual stages, no expert "
              "parallelism, the allgather dispatcher, full recomputation or its method or number of layers, moe "
              "recomputed, fp32, moe_shared_expert_overlap, mtp_num_layers above 1."},
    Condition{"G15", kMain, "delay_wgrad_compute is true and overlap_moe_expert_parallel_comm is false."},
    Condition{"G16", kMain,
              "delay_wgrad_compute and overlap_grad_reduce are true, cuda_graph_modules has attn, or moe_router in a "
              "model with shared experts that are not overlapped, and gradient_accumulation_fusion is false or the "
              "attention has biases."},

    Condition{"recompute_modules", kMain, "recompute_modules is given and recompute_granularity is not selective."},
    Condition{"R1", kMain, "recompute_granularity is full and cuda_graph_impl is local or transformer_engine."},
    Condition{
        "R2", kMain,
        "cuda_graph_impl is transformer_engine, cuda_graph_modules has moe_router and recompute_modules has moe."},
    Condition{"R3", kMain, "A graph holds attention, recompute_modules has core_attn and attention_dropout is not 0."},
    Condition{"R4", kMain,
              "hidden_dropout is not 0, and recompute_modules has mlp where a graph holds mlp, or moe where one holds "
              "moe."},
    Condition{"R6", kMain, "precision is fp8_delayed and recompute_modules has moe_act or layernorm."},
    Condition{"R8", kMain, "recompute_modules has mla_up_proj and multi_latent_attention is false."},
    Condition{"R9", kMain, "recompute_modules has shared_experts and moe_shared_expert_overlap is true."},
    Condition{"R10", kMain, "recompute_modules has mlp and mhc."},
    Condition{"R11", kMain,
              "recompute_modules has layernorm, and the norm before a layer's experts ends a graph of Transformer "
              "Engine: moe_router is captured without moe_preprocess, or the dispatcher or a shared expert reads the "
              "norm outside the graph."},
    Condition{"R12", kMain,
              "Something is offloaded and recompute_granularity is full, or the implementation is megatron and "
              "core_attn is in offload_modules and recompute_modules."},
    Condition{"R13", kMain, "recompute_modules has layernorm and offload_modules a norm, or both have moe_act."},

    Condition{"X1", kMain,
              "cuda_graph_impl is local, and offload_modules has others than expert_fc1, moe_act and fused_group_mlp."},
    Condition{"X2", kMain, "Something is offloaded, cuda_graph_impl is local and cuda_graph_modules is empty."},
    Condition{"X3", kMain, "Something is offloaded, cuda_graph_impl is local and cuda_graph_modules has moe."},
    Condition{"X4", RuleSet::pr_3219,
              "Something is offloaded and cuda_graph_impl is neither none nor transformer_engine."},
    Condition{"X4", RuleSet::core_0_18, "Something is offloaded and cuda_graph_impl is local."},
    Condition{"X5", kMain, "Something is offloaded beside graphs, and cuda_graph_modules has moe."},
    Condition{"X6", kMain, "Something is offloaded beside graphs, and cuda_graph_warmup_steps is 0."},
    Condition{"X7", kMain,
              "Something is offloaded, cuda_graph_impl is full_iteration, and "
              "fine_grained_offloading_max_inflight_offloads is null or below 0."},
    Condition{"D1", kMain,
              "offload_modules has attn_norm and cuda_graph_modules has attn, captured or not (H5); of "
              "stowage's own layers, captured."},
    Condition{"D2", kMain,
              "offload_modules has mlp_norm, cuda_graph_modules has attn or moe_router, and layers have experts; of "
              "stowage's own layers, captured."},
    Condition{"D3", kMain,
              "offload_modules has mlp_norm, cuda_graph_modules has one of attn and mlp without the other, and layers "
              "are dense; of stowage's own layers, captured."},
    Condition{"D7", kMain,
              "cuda_graph_impl is transformer_engine, and modules that are offloaded lie in the listed parts."},

    Condition{"E3", kMain,
              "cuda_graph_impl is transformer_engine, PYTORCH_CUDA_ALLOC_CONF in env has expandable_segments:True, and "
              "NCCL_GRAPH_REGISTER is not 0."},
    Condition{"E6", kMain,
              "cuda_graph_warmup_steps is 0, cuda_graph_impl is none, and modules that are offloaded lie in the listed "
              "parts (with graphs X6 says the same)."},
    Condition{"E8", kMain,
              "Something is offloaded, cuda_graph_impl is full_iteration, and PYTORCH_CUDA_ALLOC_CONF in env lacks "
              "graph_capture_record_stream_reuse:True."},

    Condition{"H1", kMain,
              "cuda_graph_impl is transformer_engine, cuda_graph_modules is empty (the whole layer), and something is "
              "offloaded."},
    Condition{"H1", RuleSet::core_0_18,
              "cuda_graph_impl is transformer_engine, and a module that is offloaded lies in a captured part."},
    Condition{"H2", kMain,
              "cuda_graph_impl is transformer_engine, modules that are offloaded lie in the listed parts, and "
              "fine_grained_offloading_max_inflight_offloads is 0 or more."},
    Condition{"H3", kMain,
              "In a microbatch that is not the last, every group up to some point stays on the GPU and more follow: "
              "fraction 0, as many modules as groups, or a delta that keeps the first groups."},
    Condition{"H4", kMain,
              "cuda_graph_impl is transformer_engine with moe_router and moe_preprocess listed, offload_modules has "
              "expert_fc1, the dispatcher is alltoall, and expert_model_parallel_size and expert_tensor_parallel_size "
              "are 1."},
    Condition{"H5", kMain,
              "The implementation is megatron, something is offloaded, cuda_graph_impl is none and cuda_graph_modules "
              "is not empty."},
    Condition{"H7", kMain,
              "delay_offload_until_cuda_graph is true beside graphs of Transformer Engine, and offload_modules has "
              "neither expert_fc1 nor moe_act, expert communication is overlapped, or a layer with experts has no "
              "graph."},
    Condition{"H8", kMain,
              "delay_offload_until_cuda_graph is true beside graphs of Transformer Engine and has an effect."},
    Condition{"H9", kMain, "Modules that are offloaded lie in the listed parts of graphs of Transformer Engine."},
    Condition{"H10", RuleSet::dev,
              "Modules that are offloaded lie in the listed parts of graphs of Transformer Engine."},
    Condition{"H12", kMain, "cuda_graph_impl is full_iteration and env sets TORCH_NCCL_AVOID_RECORD_STREAMS to 1."},
};

}  // namespace

std::string_view condition_of(const Rule& rule) {
    const auto* const found = std::find_if(kConditions.begin(), kConditions.end(), [&](const Condition& one) {
        return one.id == rule.id && rule.sets.contains(one.set);
    });
    if (found == kConditions.end()) throw std::logic_error("no words for rule " + std::string(rule.id));
    return found->text;
}

}  // namespace stowage::rules
