// The rules about offloading alone, one entry a rule.
//
// Not here, because the scenario language has no key for what they look at, but judged where Megatron's arguments are
// read: O1 (cpu_offloading), O2 (the master switch; no modules means off), O13 (paged stash), O14 (dispatcher backend),
// O15 (use_transformer_engine_op_fuser on), O16 (transformer_impl).

#include "planner/rules/offload_rules.hpp"

#include <fmt/format.h>

#include <array>

#include "planner/rules/rule_words.hpp"
#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

using types::Module;
using types::ModuleSet;
using types::RecomputeModule;
using types::RuleSet;

constexpr ModuleSet kExperts{Module::expert_fc1, Module::moe_act, Module::fused_group_mlp};

Offence unknown_module(const Case& c) {
    ModuleSet unknown;
    for (const Module module : c.choice.modules.list())
        if (!known_modules(c.scenario.rules).contains(module)) unknown.insert(module);
    return modules_if_any(unknown);
}

/// Our own attention saves its output once, in the projection's group, and reads it back from there.
Offence projection_without_attention(const Case& c) {
    if (c.scenario.implementation != types::Implementation::megatron) return std::nullopt;
    if (!c.choice.modules.contains(Module::attn_proj) || c.choice.modules.contains(Module::core_attn))
        return std::nullopt;
    return "offload_modules has attn_proj and not core_attn";
}

Offence recomputed_gdp_input(const Case& c) {
    if (!c.choice.modules.contains(Module::gdp_qkv) || !c.scenario.recompute.selects(RecomputeModule::gdp_in_proj))
        return std::nullopt;
    return "offload_modules has gdp_qkv, recompute_modules has gdp_in_proj";
}

Offence recomputed_experts(const Case& c) {
    const ModuleSet experts = common(c.choice.modules, kExperts);
    if (experts.empty() || !c.scenario.recompute.selects(RecomputeModule::moe)) return std::nullopt;
    return fmt::format("offload_modules [{}], recompute_modules has moe", experts.joined(", "));
}

Offence negative_minimum(const Case& c) {
    if (!c.offloads() || c.choice.min_offloaded_tensor_size >= 0) return std::nullopt;
    return fmt::format("min_offloaded_tensor_size is {}", c.choice.min_offloaded_tensor_size);
}

Offence fraction_out_of_range(const Case& c) {
    if (!c.offloads() || (c.choice.fraction >= 0 && c.choice.fraction <= 1)) return std::nullopt;
    return fmt::format("activation_offload_fraction is {}", c.choice.fraction);
}

Offence negative_delta(const Case& c) {
    if (!c.offloads() || c.choice.delta_bytes_across_pp_ranks >= 0) return std::nullopt;
    return fmt::format("delta_offload_bytes_across_pp_ranks is {}", c.choice.delta_bytes_across_pp_ranks);
}

/// The op fuser is off by default, and the scenario language cannot switch it on.
Offence fused_group_without_fuser(const Case& c) {
    return modules_if_any(common(c.choice.modules, {Module::fused_group_mlp}));
}

Offence fused_group_with_its_parts(const Case& c) {
    const ModuleSet parts = common(c.choice.modules, {Module::expert_fc1, Module::moe_act});
    if (parts.empty() || !c.choice.modules.contains(Module::fused_group_mlp)) return std::nullopt;
    return fmt::format("offload_modules has fused_group_mlp and {}", parts.joined(", "));
}

Offence recomputed_hyper_connections(const Case& c) {
    if (!c.scenario.recompute.selects(RecomputeModule::mhc)) return std::nullopt;
    return modules_if_any(c.choice.modules);
}

Offence recomputed_hyper_connections_at_norms(const Case& c) {
    if (!c.scenario.recompute.selects(RecomputeModule::mhc)) return std::nullopt;
    return modules_if_any(common(c.choice.modules, {Module::attn_norm, Module::mlp_norm}));
}

Offence newer_engine_offload(const Case& c) {
    if (c.scenario.env.empty()) return std::nullopt;  // a scenario without env says nothing about the environment
    const auto variable = c.scenario.env.find("NVTE_CPU_OFFLOAD_V1");
    if (!c.offloads() || c.scenario.implementation != types::Implementation::megatron) return std::nullopt;
    if (variable == c.scenario.env.end()) return "env does not set NVTE_CPU_OFFLOAD_V1";
    if (variable->second == "1") return std::nullopt;
    return fmt::format("env sets NVTE_CPU_OFFLOAD_V1 to '{}'", variable->second);
}

Offence negative_inflight_cap(const Case& c) {
    const auto cap = c.inflight_cap();
    if (!c.offloads() || !cap || *cap >= 0) return std::nullopt;
    if (c.impl() == types::CudaGraphImpl::full_iteration) return std::nullopt;
    return fmt::format("fine_grained_offloading_max_inflight_offloads is {}", *cap);
}

Offence delay_without_effect(const Case& c) {
    if (!c.delays()) return std::nullopt;
    if (!c.offloads()) return "delay_offload_until_cuda_graph is true and offload_modules is empty";
    if (c.impl() == types::CudaGraphImpl::transformer_engine) return std::nullopt;
    return fmt::format("delay_offload_until_cuda_graph is true and cuda_graph_impl is {}", types::name_of(c.impl()));
}

Offence delay_before_its_time(const Case& c) {
    if (!c.delays()) return std::nullopt;
    return "delay_offload_until_cuda_graph is true";
}

Offence fused_norm_in_some_layers(const Case& c) {
    const types::Model& model = c.scenario.model;
    if (c.scenario.implementation != types::Implementation::megatron) return std::nullopt;
    if (!c.offloads(Module::mlp_norm) || !has_site_anywhere(c.scenario, Module::mlp_norm)) return std::nullopt;
    const auto dense = [&](std::int64_t layer) { return model.feed_forward_of(layer) == types::FeedForward::dense; };
    if (!any_layer(model, dense)) return std::nullopt;
    return fmt::format("offload_modules has mlp_norm, dense {}", layers_where(model, dense));
}

Offence module_without_site(const Case& c) {
    ModuleSet absent;
    for (const Module module : c.choice.modules.list())
        if (!has_site_anywhere(c.scenario, module)) absent.insert(module);
    return modules_if_any(absent);
}

// Where a rule's first version is not on record for core-0.18, it is taken to have the rule: it only widens refusals to
// values that mean nothing.
constexpr std::array kRules = {
    Rule{"O3", kAllSets, Severity::illegal, unknown_module, "This Megatron does not know the module.",
         "Drop the module, or choose a rule set that has it.", "transformer_config.py, offload_modules"},
    Rule{"O4", kAllSets, Severity::illegal, projection_without_attention,
         "The projection's input is the attention's output, which the backward of the attention needs on the device.",
         "Add core_attn to offload_modules, or drop attn_proj.", "transformer_config.py, offload_modules"},
    Rule{"O5", RuleSets{RuleSet::main_2026_08, RuleSet::dev}, Severity::illegal, recomputed_gdp_input,
         "The recomputation drops and rebuilds the input that the group would hold.",
         "Drop gdp_qkv from offload_modules, or gdp_in_proj from recompute_modules.",
         "transformer_config.py, offload_modules"},
    Rule{"O6", kAllSets, Severity::illegal, recomputed_experts,
         "The whole expert layer is inside a checkpoint, so nothing of the experts is saved.",
         "Drop moe from recompute_modules, or the expert modules from offload_modules.",
         "transformer_config.py, offload_modules"},
    Rule{"O7", kAllSets, Severity::illegal, negative_minimum, "A tensor cannot have fewer than no elements.",
         "Set min_offloaded_tensor_size to 0 or more.", "transformer_config.py, min_offloaded_tensor_size"},
    Rule{"O8", kAllSets, Severity::illegal, fraction_out_of_range,
         "The fraction is a share of the groups, from 0 to 1.",
         "Set activation_offload_fraction to a value from 0 to 1.",
         "transformer_config.py, activation_offload_fraction"},
    Rule{"O9", kAllSets, Severity::illegal, negative_delta,
         "A later pipeline rank cannot keep fewer than no bytes more.",
         "Set delta_offload_bytes_across_pp_ranks to 0 or more.",
         "transformer_config.py, delta_offload_bytes_across_pp_ranks"},
    Rule{"O10", kSince019, Severity::illegal, fused_group_without_fuser,
         "The group exists only with the op fuser of Transformer Engine, which is off.",
         "Offload expert_fc1 and moe_act instead of fused_group_mlp.", "transformer_config.py, offload_modules"},
    Rule{"O11", kSince019, Severity::illegal, fused_group_with_its_parts,
         "fused_group_mlp is the group of expert_fc1 and moe_act together, and the two would move its tensors again.",
         "Drop either fused_group_mlp, or expert_fc1 and moe_act.", "transformer_config.py, offload_modules"},
    Rule{"O12", RuleSets{RuleSet::core_0_19, RuleSet::main_2026_08}, Severity::illegal, recomputed_hyper_connections,
         "The recomputation of hyper-connections starts before the manager knows which chunk runs backward.",
         "Drop mhc from recompute_modules, or offload nothing.", "transformer_config.py, recompute_modules"},
    Rule{"O12", RuleSets{RuleSet::dev}, Severity::illegal, recomputed_hyper_connections_at_norms,
         "The recomputation of hyper-connections starts before the manager knows which chunk runs backward.",
         "Drop mhc from recompute_modules, or the norms from offload_modules.",
         "transformer_config.py, recompute_modules"},
    Rule{"O17", kAllSets, Severity::illegal, newer_engine_offload,
         "Transformer Engine 2.10 and later would move weights too unless told to use its first offload path.",
         "Set NVTE_CPU_OFFLOAD_V1 to 1 in env.", "training/arguments.py, fine_grained_activation_offloading"},
    Rule{"O18", RuleSets{RuleSet::dev}, Severity::illegal, negative_inflight_cap,
         "The cap is a number of copies in flight.",
         "Set fine_grained_offloading_max_inflight_offloads to 0 or more, or to null for no cap.",
         "transformer_config.py, fine_grained_offloading_max_inflight_offloads"},
    Rule{"O18", RuleSets{RuleSet::core_0_18, RuleSet::core_0_19, RuleSet::main_2026_08}, Severity::hazard,
         negative_inflight_cap,
         "The value is accepted, and the first copy then waits for more copies than were made and stops the run.",
         "Set fine_grained_offloading_max_inflight_offloads to 0 or more, or to null for no cap.",
         "fine_grained_activation_offload.py, commit of a group"},
    Rule{"O19", RuleSets{RuleSet::core_0_18}, Severity::illegal, delay_before_its_time,
         "This Megatron does not know the setting.", "Set delay_offload_until_cuda_graph to false.",
         "transformer_config.py, delay_offload_until_cuda_graph"},
    Rule{"O19", kInGraph, Severity::legal_with_changes, delay_without_effect,
         "Copies are delayed only between replays of Transformer Engine's graphs of layers, and there are none, so the "
         "flag does nothing.",
         "Set delay_offload_until_cuda_graph to false.", "fine_grained_activation_offload.py, replay mode"},
    Rule{"D6", kAllSets, Severity::legal_with_changes, fused_norm_in_some_layers,
         "The norm of a dense layer is part of its first linear, so nothing is offloaded for it there.",
         "Nothing to change; count on the layers with experts only.", "core/models/gpt/gpt_layer_specs.py"},
    Rule{"D10", kAllSets, Severity::legal_with_changes, module_without_site,
         "No layer of this model has the module on its own, so nothing is offloaded for it.",
         "Drop the module from offload_modules.", "core/models/gpt/gpt_layer_specs.py"},
};

}  // namespace

std::span<const Rule> offload_rules() { return kRules; }

}  // namespace stowage::rules
