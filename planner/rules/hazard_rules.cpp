// What Megatron accepts all the same, one entry a rule.
//
// Not here: H6 (a forward-only pass before the first training step uses up the manager's learning step), because a
// scenario is about training steps alone; H11 (the last groups are reloaded without waiting for their copies out),
// because every policy has it.

#include "planner/rules/hazard_rules.hpp"

#include <fmt/format.h>

#include <array>

#include "planner/rules/chunk_mismatch.hpp"
#include "planner/rules/downgrades.hpp"
#include "planner/rules/rule_words.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RuleSet;

constexpr ModuleSet kDelayable{Module::expert_fc1, Module::moe_act};

bool engine_graphs(const Case& c) { return c.impl() == CudaGraphImpl::transformer_engine; }

LayerOffload in_layer(const Case& c, std::int64_t layer) {
    return layer_offload(c.scenario.model, c.scenario.cuda_graph, opened_modules(c), layer);
}

/// Layers whose graph holds copies.
bool captures_copies(const Case& c, std::int64_t layer) { return !in_layer(c, layer).captured.empty(); }

bool joins_copies(const Case& c) {
    return engine_graphs(c) && any_layer(c.scenario.model, [&](std::int64_t layer) {
               return in_layer(c, layer).plants_hooks && captures_copies(c, layer);
           });
}

Offence unjoined_layer(const Case& c) {
    if (!engine_graphs(c) || !c.scenario.cuda_graph.cuda_graph_modules.empty()) return std::nullopt;
    const auto captures = [&](std::int64_t layer) { return captures_copies(c, layer); };
    if (!any_layer(c.scenario.model, captures)) return std::nullopt;
    return fmt::format("cuda_graph_modules is empty, offload_modules [{}], {}", c.choice.modules.joined(", "),
                       layers_where(c.scenario.model, captures));
}

/// Before layers knew of graphs, no norm was switched off at their boundary.
ModuleSet captured_in_018(const Case& c, std::int64_t layer) {
    const types::Model& model = c.scenario.model;
    const ModuleSet present = layer_offload(model, {}, opened_modules(c), layer).active;
    if (c.scenario.cuda_graph.cuda_graph_modules.empty()) return present;
    const bool experts = model.is_moe_layer(layer);
    ModuleSet inside;
    if (c.lists(CudaGraphModule::attn))
        inside = common(present, {Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj});
    const bool norm = experts ? c.lists(CudaGraphModule::moe_router) : c.lists(CudaGraphModule::mlp);
    if (norm && present.contains(Module::mlp_norm)) inside.insert(Module::mlp_norm);
    return inside;
}

Offence unjoined_module(const Case& c) {
    if (!engine_graphs(c)) return std::nullopt;
    ModuleSet inside;
    for (std::int64_t layer = 0; layer < c.scenario.model.num_layers; ++layer)
        for (const Module module : captured_in_018(c, layer).list()) inside.insert(module);
    const auto offence = modules_if_any(inside);
    if (!offence) return std::nullopt;
    return fmt::format("{}, {}", *offence, graph_words(c));
}

Offence cap_across_graphs(const Case& c) {
    const auto cap = c.inflight_cap();
    if (!cap || *cap < 0 || !joins_copies(c)) return std::nullopt;
    return fmt::format("fine_grained_offloading_max_inflight_offloads is {}, {}", *cap, graph_words(c));
}

Offence chunk_mismatch(const Case& c) {
    if (!loses_count_of_chunks(c.scenario, c.choice)) return std::nullopt;
    return fmt::format("offload_modules [{}] with activation_offload_fraction {}", c.choice.modules.joined(", "),
                       c.choice.fraction);
}

/// With one rank of experts nothing is sent, and the permuted tokens that the graph gives out go to the experts as they
/// are. A fused permutation, which does the same with more ranks, is no key of the language.
Offence released_output_of_a_graph(const Case& c) {
    const types::ParallelLayout& parallel = c.scenario.parallel;
    const bool captured = c.lists(CudaGraphModule::moe_router) && c.lists(CudaGraphModule::moe_preprocess);
    if (!engine_graphs(c) || !captured || !c.offloads(Module::expert_fc1)) return std::nullopt;
    if (!any_layer(c.scenario.model, [&](std::int64_t layer) { return c.scenario.model.is_moe_layer(layer); }))
        return std::nullopt;
    if (parallel.expert_model_parallel_size > 1 || parallel.expert_tensor_parallel_size > 1) return std::nullopt;
    if (parallel.moe_token_dispatcher_type != types::TokenDispatcher::alltoall) return std::nullopt;
    return "offload_modules has expert_fc1, cuda_graph_modules has moe_preprocess, expert_model_parallel_size is 1";
}

Offence listed_and_not_captured(const Case& c) {
    if (c.own_layers() || c.captures() || c.scenario.cuda_graph.cuda_graph_modules.empty() || !c.offloads())
        return std::nullopt;
    return graph_words(c);
}

bool delays_beside_graphs(const Case& c) { return c.delays() && c.offloads() && engine_graphs(c); }

Offence delay_of_nothing(const Case& c) {
    if (!delays_beside_graphs(c)) return std::nullopt;
    const std::string words = "delay_offload_until_cuda_graph is true";
    if (common(c.choice.modules, kDelayable).empty())
        return words + ", offload_modules has neither expert_fc1 nor moe_act";
    if (c.scenario.parallel.overlap_moe_expert_parallel_comm)
        return words + ", overlap_moe_expert_parallel_comm is true";
    const types::Model& model = c.scenario.model;
    const auto eager = [&](std::int64_t layer) {
        return model.is_moe_layer(layer) && !c.captures(CudaGraphModule::attn) &&
               !c.captures(CudaGraphModule::moe_router);
    };
    if (!any_layer(model, eager)) return std::nullopt;
    return fmt::format("{}, no graph in {} with experts", words, layers_where(model, eager));
}

Offence delay_of_the_last_layer(const Case& c) {
    if (!delays_beside_graphs(c) || delay_of_nothing(c)) return std::nullopt;
    return "delay_offload_until_cuda_graph is true";
}

Offence pinned_buffers_of_graphs(const Case& c) {
    if (!joins_copies(c)) return std::nullopt;
    return graph_words(c);
}

Offence avoided_record_streams(const Case& c) {
    if (c.impl() != CudaGraphImpl::full_iteration) return std::nullopt;
    const auto variable = c.scenario.env.find("TORCH_NCCL_AVOID_RECORD_STREAMS");
    if (variable == c.scenario.env.end() || variable->second != "1") return std::nullopt;
    return "cuda_graph_impl is full_iteration, env sets TORCH_NCCL_AVOID_RECORD_STREAMS to 1";
}

constexpr std::array kRules = {
    Rule{"H1", kInGraph, Severity::hazard, unjoined_layer,
         "Copies of a layer captured whole leave for another stream that never joins the graph again, and the capture "
         "fails.",
         "List the parts to capture in cuda_graph_modules, such as attn.", "transformer_layer.py, capture"},
    Rule{"H1", RuleSets{RuleSet::core_0_18}, Severity::hazard, unjoined_module,
         "A graph of this Megatron cannot hold what is offloaded: the copies never join it.",
         "Offload modules outside the graph only, or leave them out of cuda_graph_modules.",
         "user guide of core 0.18, fine-grained activation offloading"},
    Rule{"H2", kSince019, Severity::hazard, cap_across_graphs,
         "The cap makes the main stream wait for an event of another graph's capture.",
         "Set fine_grained_offloading_max_inflight_offloads to null.",
         "https://github.com/NVIDIA/Megatron-LM/pull/7020"},
    Rule{"H3", kSince019, Severity::hazard, chunk_mismatch,
         "The first groups of a microbatch all stay on the GPU, the manager takes the microbatch for finished, and the "
         "second iteration stops with 'Chunk mismatch'.",
         "Raise activation_offload_fraction until the first group of every microbatch moves, with "
         "delta_offload_bytes_across_pp_ranks 0 and more than one layer on each pipeline rank.",
         "fine_grained_activation_offload.py, finished chunks"},
    Rule{"H4", kInGraph, Severity::hazard, released_output_of_a_graph,
         "The experts' input is then an output of the graph, whose storage cannot be released, and the run stops.",
         "Drop moe_preprocess from cuda_graph_modules, or expert_fc1 from offload_modules, or use expert parallelism.",
         "https://github.com/NVIDIA/Megatron-LM/issues/7009"},
    Rule{"H5", kInGraph, Severity::note, listed_and_not_captured,
         "Nothing is captured, but the listed modules switch norms off and ask for the versions that graphs need.",
         "Leave cuda_graph_modules empty, or set cuda_graph_impl.", "transformer_layer.py, offload modules of a layer"},
    Rule{"H7", kInGraph, Severity::note, delay_of_nothing,
         "Only copies of expert_fc1 and moe_act wait, and only between replayed graphs of layers in order, so the flag "
         "does nothing there.",
         "Set delay_offload_until_cuda_graph to false.", "transformer_layer.py, replay"},
    Rule{"H8", kInGraph, Severity::note, delay_of_the_last_layer,
         "The last layer's expert groups leave behind the next microbatch's first graph only, or not at all.",
         "Nothing to change; count on one layer's experts more.", "fine_grained_activation_offload.py, delayed groups"},
    Rule{"H9", kInGraph, Severity::note, pinned_buffers_of_graphs,
         "Graphs keep the addresses of pinned buffers that the pool takes for free after each step; nothing eager of "
         "the same shape may take them.",
         "", "fine_grained_activation_offload.py, reset"},
    Rule{"H10", RuleSets{RuleSet::dev}, Severity::note, pinned_buffers_of_graphs,
         "The graph's backward says that it has ended before all gradients of its parameters have.",
         "Use a dev branch after its fix.", "https://github.com/NVIDIA/Megatron-LM/pull/7014"},
    Rule{"H12", kAllSets, Severity::hazard, avoided_record_streams,
         "Runs with it are reported at a third of the speed.", "Set TORCH_NCCL_AVOID_RECORD_STREAMS to 0 in env.",
         "published recipes of full-iteration graphs"},
};

}  // namespace

std::span<const Rule> hazard_rules() { return kRules; }

}  // namespace stowage::rules
