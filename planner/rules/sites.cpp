#include "planner/rules/sites.hpp"

#include <cstdint>

namespace stowage::rules {

using types::Module;
using types::RuleSet;

bool has_site(const types::Model& model, Module module, std::int64_t layer) {
    const bool attends = model.mixer_of(layer) == types::Mixer::attention;
    switch (module) {
        case Module::qkv_linear:
        case Module::core_attn:
        case Module::attn_proj: return attends;
        case Module::mlp_norm:
        case Module::expert_fc1:
        case Module::moe_act: return model.is_moe_layer(layer);
        case Module::attn_norm: return attends && model.multi_latent_attention;
        case Module::fused_group_mlp:
        case Module::gdp_qkv: return false;
    }
    return false;
}

bool has_site_anywhere(const types::Scenario& scenario, Module module) {
    const types::Model& model = scenario.model;
    const bool norm = module == Module::attn_norm || module == Module::mlp_norm;
    if (scenario.implementation == types::Implementation::stowage && norm) return true;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
        if (has_site(model, module, layer)) return true;
    return false;
}

types::ModuleSet known_modules(RuleSet set) {
    types::ModuleSet known{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                           Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
    const bool since_019 = set == RuleSet::core_0_19 || set == RuleSet::main_2026_08 || set == RuleSet::dev;
    if (since_019) known.insert(Module::fused_group_mlp);
    if (since_019 && set != RuleSet::core_0_19) known.insert(Module::gdp_qkv);
    return known;
}

}  // namespace stowage::rules
