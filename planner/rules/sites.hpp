#pragma once

#include <cstdint>

#include "scenarios/types/model.hpp"
#include "scenarios/types/module.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// Whether layer `layer` (from 0) has an offload group of this name.
/// In Megatron's Transformer Engine layers the attention norm is part of the qkv linear (only multi-latent attention
/// keeps it apart), and the norm before the MLP is part of the first linear in dense layers. Mamba mixers and gated
/// delta nets have no group. The fused group MLP and the gated delta product (which alone has gdp_qkv) exist only in
/// models that the language does not have. Source: Megatron-LM, core/models/gpt/gpt_layer_specs.py,
/// core/models/hybrid/hybrid_layer_specs.py, core/ssm/gated_delta_product.py.
bool has_site(const types::Model& model, types::Module module, std::int64_t layer);

/// Whether any layer of the scenario has one. Layers of implementation `stowage` have their norms apart, and so a group
/// for each of the five modules of a dense layer.
bool has_site_anywhere(const types::Scenario& scenario, types::Module module);

/// The modules that `--offload-modules` of a Megatron of this rule set knows.
types::ModuleSet known_modules(types::RuleSet set);

}  // namespace stowage::rules
