#pragma once

#include <functional>
#include <string>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The modules that are in both.
types::ModuleSet common(types::ModuleSet left, types::ModuleSet right);

/// The offloaded modules whose groups are opened at all: none under full recomputation, and not core_attn inside a
/// checkpoint of its own, except in stowage's own layers.
types::ModuleSet opened_modules(const Case& c);

/// "offload_modules [core_attn, attn_proj]", or no offence if there is none.
Offence modules_if_any(types::ModuleSet modules);

/// The graph settings as the scenario has them: "cuda_graph_impl local with cuda_graph_modules [attn]".
std::string graph_words(const Case& c);

/// Layers by Megatron's numbers, which begin at 1: "layer 3", "layers 1-3, 7", "no layer"; `picks` takes them from 0.
std::string layers_where(const types::Model& model, const std::function<bool(std::int64_t)>& picks);

/// Whether any layer is such.
bool any_layer(const types::Model& model, const std::function<bool(std::int64_t)>& picks);

}  // namespace stowage::rules
