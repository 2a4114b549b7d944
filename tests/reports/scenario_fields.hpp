#pragma once

// The fields of the types that a scenario is made of, each by its place. A field that is added to a type no longer
// compiles here until it is named; then the test asks for it in the plan's form.

#include <tuple>

#include "scenarios/types/scenario.hpp"

namespace stowage::types {

inline auto fields_of(const Model& model) {
    const auto& [name, num_layers, hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups, kv_channels,
                 vocab_size, make_vocab_size_divisible_by, max_position_embeddings, normalization, activation,
                 position_embedding_type, untie_embeddings_and_output_weights, add_bias_linear, add_qkv_bias,
                 qk_layernorm, qk_norm_span, attention_output_gate, softmax_type, window_size, window_layers,
                 attention_dropout, hidden_dropout, transformer_impl, masked_softmax_fusion, deterministic_mode,
                 multi_latent_attention, q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim,
                 rope_type, num_experts, moe_router_topk, moe_ffn_hidden_size, moe_shared_expert_intermediate_size,
                 moe_shared_expert_gate, moe_latent_size, moe_grouped_gemm, moe_permute_fusion,
                 moe_router_score_function, moe_router_pre_softmax, moe_router_num_groups, moe_router_group_topk,
                 moe_router_topk_scaling_factor, moe_router_enable_expert_bias, moe_expert_capacity_factor,
                 moe_pad_expert_input_to_capacity, moe_layer_freq, mtp_num_layers, mtp_loss_scaling_factor, mixers,
                 feed_forward, mtp_mixers, mtp_feed_forward, mamba_state_dim, mamba_head_dim, mamba_num_heads,
                 mamba_num_groups, linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim,
                 linear_num_key_heads, linear_num_value_heads] = model;
    return std::tie(name, num_layers, hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups, kv_channels,
                    vocab_size, make_vocab_size_divisible_by, max_position_embeddings, normalization, activation,
                    position_embedding_type, untie_embeddings_and_output_weights, add_bias_linear, add_qkv_bias,
                    qk_layernorm, qk_norm_span, attention_output_gate, softmax_type, window_size, window_layers,
                    attention_dropout, hidden_dropout, transformer_impl, masked_softmax_fusion, deterministic_mode,
                    multi_latent_attention, q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim,
                    rope_type, num_experts, moe_router_topk, moe_ffn_hidden_size, moe_shared_expert_intermediate_size,
                    moe_shared_expert_gate, moe_latent_size, moe_grouped_gemm, moe_permute_fusion,
                    moe_router_score_function, moe_router_pre_softmax, moe_router_num_groups, moe_router_group_topk,
                    moe_router_topk_scaling_factor, moe_router_enable_expert_bias, moe_expert_capacity_factor,
                    moe_pad_expert_input_to_capacity, moe_layer_freq, mtp_num_layers, mtp_loss_scaling_factor, mixers,
                    feed_forward, mtp_mixers, mtp_feed_forward, mamba_state_dim, mamba_head_dim, mamba_num_heads,
                    mamba_num_groups, linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim,
                    linear_num_key_heads, linear_num_value_heads);
}

inline auto fields_of(const ParallelLayout& layout) {
    const auto& [tensor, pipeline, virtual_stages, context, expert, expert_tensor, data, sequence, first, last,
                 embedding, loss, letters, group, overlap_p2p, cp_comm, cp_sizes, dispatcher, backend, shared_overlap,
                 expert_overlap, delay_wgrad, tp_overlap, defer_wgrad, deferral_limit] = layout;
    return std::tie(tensor, pipeline, virtual_stages, context, expert, expert_tensor, data, sequence, first, last,
                    embedding, loss, letters, group, overlap_p2p, cp_comm, cp_sizes, dispatcher, backend,
                    shared_overlap, expert_overlap, delay_wgrad, tp_overlap, defer_wgrad, deferral_limit);
}

inline auto fields_of(const Batch& batch) {
    const auto& [micro, global, sequence, routing, skew] = batch;
    return std::tie(micro, global, sequence, routing, skew);
}

inline auto fields_of(const Optimizer& optimizer) {
    const auto& [kind, distributed, overlap_reduce, overlap_gather, instances, aware, grads, params, first, second,
                 reduce_bf16, fusion, fp8_gather, offload, fraction, overlap_offload] = optimizer;
    return std::tie(kind, distributed, overlap_reduce, overlap_gather, instances, aware, grads, params, first, second,
                    reduce_bf16, fusion, fp8_gather, offload, fraction, overlap_offload);
}

inline auto fields_of(const Recompute& recompute) {
    const auto& [granularity, method, layers, modules] = recompute;
    return std::tie(granularity, method, layers, modules);
}

inline auto fields_of(const CudaGraph& graph) {
    const auto& [impl, modules, warmup] = graph;
    return std::tie(impl, modules, warmup);
}

inline auto fields_of(const Offload& offload) {
    const auto& [modules, fraction, minimum, delta, inflight, delay] = offload;
    return std::tie(modules, fraction, minimum, delta, inflight, delay);
}

inline auto fields_of(const Limits& limits) {
    const auto& [device, host] = limits;
    return std::tie(device, host);
}

inline auto fields_of(const Slowdown& slowdown) {
    const auto& [under_d2h, under_h2d, under_both] = slowdown;
    return std::tie(under_d2h, under_h2d, under_both);
}

inline auto fields_of(const CopyPoint& point) {
    const auto& [size, time] = point;
    return std::tie(size, time);
}

inline auto fields_of(const Link& link) {
    const auto& [rate, latency] = link;
    return std::tie(rate, latency);
}

inline auto fields_of(const AttentionLoss& loss) {
    const auto& [start_keys, tail_blocks] = loss;
    return std::tie(start_keys, tail_blocks);
}

inline auto fields_of(const HeadSizeRate& rate) {
    const auto& [head_size, forward, backward] = rate;
    return std::tie(head_size, forward, backward);
}

inline auto fields_of(const DutyRate& rate) {
    const auto& [duty, gemm, attention] = rate;
    return std::tie(duty, gemm, attention);
}

inline auto fields_of(const Device& device) {
    const auto& [name, capability, memory, gemm_bf16, gemm_fp8, gemm_blockwise, gemm_ramp, attention_forward_rate,
                 attention_backward_rate, attention_forward, attention_backward, head_sizes, duties, bandwidth, strided,
                 overhead] = device;
    return std::tie(name, capability, memory, gemm_bf16, gemm_fp8, gemm_blockwise, gemm_ramp, attention_forward_rate,
                    attention_backward_rate, attention_forward, attention_backward, head_sizes, duties, bandwidth,
                    strided, overhead);
}

inline auto fields_of(const CopyEngines& copy) {
    const auto& [to_host, to_device, duplex_to_host, duplex_to_device, time_slice, slowdown] = copy;
    return std::tie(to_host.points(), to_device.points(), duplex_to_host, duplex_to_device, time_slice, slowdown);
}

inline auto fields_of(const HostCosts& host) {
    const auto& [kernel, forward, backward, gemm, attention, copy, event, synchronize, allocation, pinned, bandwidth,
                 depth] = host;
    return std::tie(kernel, forward, backward, gemm, attention, copy, event, synchronize, allocation, pinned, bandwidth,
                    depth);
}

inline auto fields_of(const GraphCosts& graph) {
    const auto& [launch, launch_node, launch_branch, forward, backward, instantiate, node_overhead, memory_graph,
                 memory_node, memory_branch, copy_out, copy_back] = graph;
    return std::tie(launch, launch_node, launch_branch, forward, backward, instantiate, node_overhead, memory_graph,
                    memory_node, memory_branch, copy_out, copy_back);
}

inline auto fields_of(const Node& node) {
    const auto& [name, gpus, device, copy, host, graph, nvlink, network, host_memory] = node;
    return std::tie(name, gpus, device, copy, host, graph, nvlink, network, host_memory);
}

/// Without the figures of the machine, which are `Node`'s.
inline auto fields_of(const Scenario& scenario) {
    const auto& [name, implementation, rules, env, model, parallel, batch, precision, optimizer, recompute, cuda_graph,
                 offload, hardware, limits, objective] = scenario;
    return std::tie(implementation, rules, env, model, parallel, batch, precision, optimizer, recompute, cuda_graph,
                    offload, limits, objective, hardware.nodes);
}

}  // namespace stowage::types
