// The rules about recomputation, one entry a rule.
//
// R5 (input jitter) and R7 (experts without grouped GEMM) are judged where Megatron's arguments are read, since a
// scenario cannot say either. Of R6 the version of Transformer Engine is taken to be new enough. R13, that recomputing
// a module and moving its input go well together, is a note.

#include "planner/rules/recompute_rules.hpp"

#include <fmt/format.h>

#include <array>

#include "planner/rules/downgrades.hpp"
#include "planner/rules/rule_words.hpp"
#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::ModuleSet;
using types::RecomputeGranularity;
using types::RecomputeModule;

bool recomputes_all(const Case& c) { return c.scenario.recompute.recompute_granularity == RecomputeGranularity::full; }

Offence modules_without_selection(const Case& c) {
    const types::Recompute& recompute = c.scenario.recompute;
    if (recompute.recompute_modules.empty() || recompute.recompute_granularity == RecomputeGranularity::selective)
        return std::nullopt;
    return fmt::format("recompute_modules is given and recompute_granularity is {}",
                       types::name_of(recompute.recompute_granularity));
}

Offence everything_in_layer_graphs(const Case& c) {
    if (!recomputes_all(c) || !c.captures() || c.impl() == CudaGraphImpl::full_iteration) return std::nullopt;
    return fmt::format("recompute_granularity is full and cuda_graph_impl is {}", types::name_of(c.impl()));
}

Offence router_inside_a_checkpoint(const Case& c) {
    if (!c.recomputes(RecomputeModule::moe) || !c.lists(CudaGraphModule::moe_router)) return std::nullopt;
    if (c.impl() != CudaGraphImpl::transformer_engine) return std::nullopt;
    return graph_words(c) + ", recompute_modules has moe";
}

Offence dropout_of_captured_attention(const Case& c) {
    const double dropout = c.scenario.model.attention_dropout;
    if (dropout == 0 || !c.recomputes(RecomputeModule::core_attn) || !c.captures(CudaGraphModule::attn))
        return std::nullopt;
    return fmt::format("{}, recompute_modules has core_attn, attention_dropout is {}", graph_words(c), dropout);
}

Offence dropout_of_captured_mlp(const Case& c) {
    const double dropout = c.scenario.model.hidden_dropout;
    const bool dense = c.recomputes(RecomputeModule::mlp) && c.captures(CudaGraphModule::mlp);
    const bool experts = c.recomputes(RecomputeModule::moe) && c.captures(CudaGraphModule::moe);
    if (dropout == 0 || (!dense && !experts)) return std::nullopt;
    return fmt::format("{}, recompute_modules has {}, hidden_dropout is {}", graph_words(c), dense ? "mlp" : "moe",
                       dropout);
}

Offence delayed_scaling(const Case& c) {
    if (c.scenario.precision != types::Precision::fp8_delayed) return std::nullopt;
    for (const RecomputeModule module : {RecomputeModule::moe_act, RecomputeModule::layernorm})
        if (c.recomputes(module))
            return fmt::format("precision is fp8_delayed, recompute_modules has {}", types::name_of(module));
    return std::nullopt;
}

Offence latent_projection_without_latents(const Case& c) {
    if (!c.recomputes(RecomputeModule::mla_up_proj) || c.scenario.model.multi_latent_attention) return std::nullopt;
    return "recompute_modules has mla_up_proj, multi_latent_attention is false";
}

Offence overlapped_shared_experts(const Case& c) {
    if (!c.recomputes(RecomputeModule::shared_experts) || !c.scenario.parallel.moe_shared_expert_overlap)
        return std::nullopt;
    return "recompute_modules has shared_experts, moe_shared_expert_overlap is true";
}

Offence mlp_inside_hyper_connections(const Case& c) {
    if (!c.recomputes(RecomputeModule::mlp) || !c.recomputes(RecomputeModule::mhc)) return std::nullopt;
    return "recompute_modules has mlp and mhc";
}

Offence norm_at_the_end_of_a_graph(const Case& c) {
    const types::Model& model = c.scenario.model;
    if (!c.recomputes(RecomputeModule::layernorm)) return std::nullopt;
    const auto loses = [&](std::int64_t layer) {
        return has_site(model, Module::mlp_norm, layer) && !recomputes_mlp_norm(c.scenario, layer);
    };
    if (!any_layer(model, loses)) return std::nullopt;
    return fmt::format("{}, recompute_modules has layernorm, {} with experts", graph_words(c),
                       layers_where(model, loses));
}

/// A checkpoint saves its own input only, and the manager's group is not open when it runs its forward again. Our own
/// attention saves that input in its group.
Offence recomputed_and_offloaded(const Case& c) {
    if (c.offloads() && recomputes_all(c))
        return fmt::format("offload_modules [{}], recompute_granularity is full", c.choice.modules.joined(", "));
    if (!c.own_layers() && c.offloads(Module::core_attn) && c.recomputes(RecomputeModule::core_attn))
        return "offload_modules and recompute_modules both have core_attn";
    return std::nullopt;
}

Offence input_of_a_recomputed_module(const Case& c) {
    ModuleSet modules;
    if (c.recomputes(RecomputeModule::layernorm))
        modules = common(c.choice.modules, {Module::attn_norm, Module::mlp_norm});
    if (c.recomputes(RecomputeModule::moe_act) && c.offloads(Module::moe_act)) modules.insert(Module::moe_act);
    const auto offence = modules_if_any(modules);
    if (!offence) return std::nullopt;
    return *offence + ", recomputed too";
}

constexpr std::array kRules = {
    Rule{"recompute_modules", kAllSets, Severity::legal_with_changes, modules_without_selection,
         "Modules are recomputed by name only with selective granularity, so the list has no effect.",
         "Set recompute_granularity to selective, or leave recompute_modules out.",
         "transformer_config.py, recompute_granularity"},
    Rule{"R1", kAllSets, Severity::illegal, everything_in_layer_graphs,
         "Whole layers run again in the backward, which graphs of single layers have no forward for.",
         "Set recompute_granularity to selective, or cuda_graph_impl to none or full_iteration.",
         "transformer_config.py, recompute_granularity"},
    Rule{"R2", kAllSets, Severity::illegal, router_inside_a_checkpoint,
         "The checkpoint around the whole expert layer would run a captured router again.",
         "Drop moe from recompute_modules, or moe_router and moe_preprocess from cuda_graph_modules.",
         "transformer_config.py, recompute_modules"},
    Rule{"R3", kAllSets, Severity::illegal, dropout_of_captured_attention,
         "A replayed graph cannot give the recomputation the random numbers of its forward.",
         "Drop core_attn from recompute_modules, set attention_dropout to 0, or leave attention out of the graph.",
         "transformer_config.py, recompute_modules"},
    Rule{"R4", kAllSets, Severity::illegal, dropout_of_captured_mlp,
         "A replayed graph cannot give the recomputation the random numbers of its forward.",
         "Drop the module from recompute_modules, set hidden_dropout to 0, or leave it out of the graph.",
         "transformer_config.py, recompute_modules"},
    Rule{"R6", kAllSets, Severity::illegal, delayed_scaling,
         "Running a module again would update the history of its scales a second time.",
         "Use another FP8 recipe, or drop moe_act and layernorm from recompute_modules.",
         "transformer_config.py, recompute_modules"},
    Rule{"R8", kAllSets, Severity::illegal, latent_projection_without_latents,
         "The projection from latents exists only in multi-latent attention.",
         "Drop mla_up_proj from recompute_modules.", "transformer_config.py, recompute_modules"},
    Rule{"R9", kAllSets, Severity::illegal, overlapped_shared_experts,
         "Shared experts beside the dispatch run in pieces, which a checkpoint cannot hold.",
         "Drop shared_experts from recompute_modules, or set moe_shared_expert_overlap to false.",
         "transformer_config.py, recompute_modules"},
    Rule{"R10", RuleSets{types::RuleSet::core_0_19, types::RuleSet::main_2026_08, types::RuleSet::dev},
         Severity::illegal, mlp_inside_hyper_connections,
         "The recomputation of hyper-connections already holds the MLP's input.",
         "Drop mlp or mhc from recompute_modules.", "transformer_config.py, recompute_modules"},
    Rule{"R11", kAllSets, Severity::legal_with_changes, norm_at_the_end_of_a_graph,
         "The norm before the experts is an output of the graph, whose buffer cannot be given back, so it is not "
         "recomputed there.",
         "Add moe_preprocess to cuda_graph_modules with the alltoall dispatcher and without overlapped shared experts.",
         "transformer_layer.py, recomputation of norms"},
    Rule{"R12", kAllSets, Severity::legal_with_changes, recomputed_and_offloaded,
         "What is recomputed saves only the checkpoint's input, outside the group, so nothing is offloaded for it.",
         "Drop the modules from offload_modules, or do not recompute them.",
         "attention.py, checkpointed core attention"},
    Rule{"R13", kAllSets, Severity::note, input_of_a_recomputed_module,
         "The recomputation keeps the module's input only, and the offload moves that input: the two go together.", "",
         "user guide, fine-grained activation offloading"},
};

}  // namespace

std::span<const Rule> recompute_rules() { return kRules; }

}  // namespace stowage::rules
