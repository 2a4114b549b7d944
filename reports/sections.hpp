#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

// Parts of what a terminal shows, each made from the document of a plan or a simulation. At most 100 columns.

/// Model, layout, hardware, limits and rules.
std::string job_section(const Json& document);
/// Megatron's environment and arguments ready to paste, or that none are needed, below an empty line; nothing for
/// stowage's own layers.
std::string flags_section(const Json& document);
/// The table of the pipeline ranks, the first iteration beside later ones where they differ, and bytes by module.
/// `ranks` as in the document; `device_limit` in bytes.
std::string ranks_section(const Json& ranks, std::int64_t device_limit);
/// `core_attn moe_act, fraction 0.8`, or `nothing`.
std::string choice_words(const Json& choice);
/// `core_attn moe_act`, or `nothing`.
std::string module_words(const Json& choice);
/// The entry of the rank with the highest reserved peak.
const Json& fullest_rank(const Json& ranks);

}  // namespace stowage::reports
