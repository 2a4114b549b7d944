#pragma once

#include "scenarios/types/model.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// Whether a layer of the model has an offload group of this name.
/// In Megatron's Transformer Engine layers the attention norm is part of the qkv linear (only multi-latent attention
/// keeps it apart), and the norm before the MLP is part of the first linear in dense layers. The fused group MLP and
/// the gated delta product exist only in models that the language does not have yet. Source: Megatron-LM,
/// core/models/gpt/gpt_layer_specs.py.
bool has_site(const types::Model& model, types::Module module, bool moe_layer);

/// Whether any layer has one.
bool has_site_anywhere(const types::Model& model, types::Module module);

/// The modules that `--offload-modules` of a Megatron of this rule set knows.
types::ModuleSet known_modules(types::RuleSet set);

}  // namespace stowage::rules
