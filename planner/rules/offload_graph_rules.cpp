// The rules about offloading beside graphs, one entry a rule.
//
// D4 and D5 change nothing: the norm of a dense layer stays where both halves are captured, and every module stays
// where the whole layer is. D8 is a warning's text. D9 (overlapped layers open no group for the norm before the experts
// and delay no copy) follows from D2, since their graphs may list attention and the router only, and is told as H7.

#include "planner/rules/offload_graph_rules.hpp"

#include <fmt/format.h>

#include <array>

#include "planner/rules/downgrades.hpp"
#include "planner/rules/rule_words.hpp"
#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::FeedForward;
using types::Module;
using types::ModuleSet;
using types::RuleSet;

constexpr ModuleSet kExperts{Module::expert_fc1, Module::moe_act, Module::fused_group_mlp};
constexpr RuleSets kSeed{RuleSet::pr_3219};
constexpr RuleSets k018{RuleSet::core_0_18};

Offence graphs_if(const Case& c, bool broken) {
    if (!broken) return std::nullopt;
    return fmt::format("{}, offload_modules [{}]", graph_words(c), c.choice.modules.joined(", "));
}

bool offloads_beside(const Case& c, CudaGraphImpl impl) { return c.offloads() && c.impl() == impl; }

Offence local_graph_around_copies(const Case& c) {
    return graphs_if(
        c, offloads_beside(c, CudaGraphImpl::local) && common(c.choice.modules, kExperts) != c.choice.modules);
}

Offence local_graph_of_the_layer(const Case& c) {
    return graphs_if(c, offloads_beside(c, CudaGraphImpl::local) && c.scenario.cuda_graph.cuda_graph_modules.empty());
}

Offence local_graph_of_the_experts(const Case& c) {
    return graphs_if(c, offloads_beside(c, CudaGraphImpl::local) && c.lists(CudaGraphModule::moe));
}

Offence other_than_the_engines_graphs(const Case& c) {
    return graphs_if(c, c.offloads() && c.captures() && c.impl() != CudaGraphImpl::transformer_engine);
}

Offence local_graphs(const Case& c) { return graphs_if(c, offloads_beside(c, CudaGraphImpl::local)); }

Offence graph_of_the_experts(const Case& c) {
    return graphs_if(c, c.offloads() && c.captures() && c.lists(CudaGraphModule::moe));
}

Offence no_eager_step(const Case& c) {
    const std::int64_t steps = c.scenario.cuda_graph.cuda_graph_warmup_steps;
    if (!c.offloads() || !c.captures() || steps > 0) return std::nullopt;
    return fmt::format("cuda_graph_warmup_steps is {}", steps);
}

Offence uncapped_iteration(const Case& c) {
    const auto cap = c.inflight_cap();
    if (!offloads_beside(c, CudaGraphImpl::full_iteration) || (cap && *cap >= 0)) return std::nullopt;
    return fmt::format("cuda_graph_impl is full_iteration, fine_grained_offloading_max_inflight_offloads is {}",
                       cap ? fmt::format("{}", *cap) : "null");
}

bool attends(const Case& c, std::int64_t layer) { return c.scenario.model.mixer_of(layer) == types::Mixer::attention; }

/// Megatron goes by the list when it builds its layers, whether or not anything is captured; our own layers do not.
bool heeds_the_list(const Case& c) { return c.captures() || !c.own_layers(); }

Offence norm_before_captured_attention(const Case& c) {
    if (!heeds_the_list(c)) return std::nullopt;
    if (!c.offloads(Module::attn_norm) || !c.lists(CudaGraphModule::attn)) return std::nullopt;
    return fmt::format("offload_modules has attn_norm, cuda_graph_modules has attn, {} with attention",
                       layers_where(c.scenario.model, [&](std::int64_t layer) { return attends(c, layer); }));
}

Offence norm_before_experts(const Case& c) {
    const types::Model& model = c.scenario.model;
    const bool attention = c.lists(CudaGraphModule::attn);
    if (!heeds_the_list(c)) return std::nullopt;
    if (!c.offloads(Module::mlp_norm) || (!attention && !c.lists(CudaGraphModule::moe_router))) return std::nullopt;
    const auto experts = [&](std::int64_t layer) { return model.is_moe_layer(layer); };
    if (!any_layer(model, experts)) return std::nullopt;
    return fmt::format("offload_modules has mlp_norm, cuda_graph_modules has {}, {} with experts",
                       attention ? "attn" : "moe_router", layers_where(model, experts));
}

Offence norm_between_halves(const Case& c) {
    const types::Model& model = c.scenario.model;
    const bool attention = c.lists(CudaGraphModule::attn);
    if (!heeds_the_list(c)) return std::nullopt;
    if (!c.offloads(Module::mlp_norm) || attention == c.lists(CudaGraphModule::mlp)) return std::nullopt;
    const auto dense = [&](std::int64_t layer) { return model.feed_forward_of(layer) == FeedForward::dense; };
    if (!any_layer(model, dense)) return std::nullopt;
    return fmt::format("offload_modules has mlp_norm, cuda_graph_modules has {} without {}, dense {}",
                       attention ? "attn" : "mlp", attention ? "mlp" : "attn", layers_where(model, dense));
}

Offence captured_and_joined(const Case& c) {
    const types::Model& model = c.scenario.model;
    if (c.impl() != CudaGraphImpl::transformer_engine) return std::nullopt;
    ModuleSet captured;
    const auto joins = [&](std::int64_t layer) {
        const LayerOffload left = layer_offload(model, c.scenario.cuda_graph, opened_modules(c), layer);
        if (!left.plants_hooks || left.captured.empty()) return false;
        for (const Module module : left.captured.list()) captured.insert(module);
        return true;
    };
    if (!any_layer(model, joins)) return std::nullopt;
    const std::string where = layers_where(model, joins);
    return fmt::format("offload_modules [{}] in the graphs of {}", captured.joined(", "), where);
}

// Judged by core-0.18 before layers knew of graphs: X5 is taken to be there too, since its documents say that no graph
// may hold what is offloaded.
constexpr std::array kRules = {
    Rule{"X1", kSince019, Severity::illegal, local_graph_around_copies,
         "Local graphs do not join the copies that would be captured in them.",
         "Offload experts only (expert_fc1, moe_act), or set cuda_graph_impl to transformer_engine.",
         "transformer_config.py, offloading beside graphs"},
    Rule{"X2", kSince019, Severity::illegal, local_graph_of_the_layer,
         "A local graph of the whole layer would capture the experts' copies.",
         "List attn or moe_router and moe_preprocess in cuda_graph_modules.",
         "transformer_config.py, offloading beside graphs"},
    Rule{"X3", kSince019, Severity::illegal, local_graph_of_the_experts,
         "A local graph of the whole expert layer would capture the experts' copies.",
         "List moe_router and moe_preprocess instead of moe.", "transformer_config.py, offloading beside graphs"},
    Rule{"X4", kSeed, Severity::illegal, other_than_the_engines_graphs,
         "This Megatron offloads beside graphs of Transformer Engine only.",
         "Set cuda_graph_impl to transformer_engine or none.", "transformer_config.py, offloading beside graphs"},
    Rule{"X4", k018, Severity::illegal, local_graphs,
         "This Megatron offloads beside graphs of Transformer Engine or of the whole iteration only.",
         "Set cuda_graph_impl to transformer_engine, full_iteration or none.",
         "transformer_config.py, offloading beside graphs"},
    Rule{"X5", kAllSets, Severity::illegal, graph_of_the_experts,
         "moe captures experts that drop and pad, whose copies nothing handles.",
         "List moe_router and moe_preprocess instead of moe.", "transformer_config.py, offloading beside graphs"},
    Rule{"X6", kAllSets, Severity::illegal, no_eager_step,
         "The manager learns which groups there are from an eager step, which must come before the capture.",
         "Set cuda_graph_warmup_steps to 1 or more.", "transformer_config.py, cuda_graph_warmup_steps"},
    Rule{"X7", kSince018, Severity::illegal, uncapped_iteration,
         "Copies must be joined inside the one graph, or what they release cannot be used again in it.",
         "Set fine_grained_offloading_max_inflight_offloads to 0 or more.",
         "transformer_config.py, fine_grained_offloading_max_inflight_offloads"},
    Rule{"D1", kInGraph, Severity::legal_with_changes, norm_before_captured_attention,
         "The norm's input is the graph's input buffer and cannot leave, so nothing is offloaded for it.",
         "Drop attn_norm from offload_modules, or attn from cuda_graph_modules.",
         "transformer_layer.py, offload modules of a layer"},
    Rule{"D2", kInGraph, Severity::legal_with_changes, norm_before_experts,
         "The graph's boundary holds the norm's input, so nothing is offloaded for it there.",
         "Drop mlp_norm from offload_modules, or attn and moe_router from cuda_graph_modules.",
         "transformer_layer.py, offload modules of a layer"},
    Rule{"D3", kInGraph, Severity::legal_with_changes, norm_between_halves,
         "The graph's boundary holds the norm's input, so nothing is offloaded for it there.",
         "Drop mlp_norm from offload_modules, or list both attn and mlp.",
         "transformer_layer.py, offload modules of a layer"},
    Rule{"D7", kInGraph, Severity::note, captured_and_joined,
         "The copies are nodes of the graph, and the next graph waits for them.", "",
         "transformer_layer.py, capture and replay"},
};

}  // namespace

std::span<const Rule> offload_graph_rules() { return kRules; }

}  // namespace stowage::rules
