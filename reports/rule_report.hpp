#pragma once

#include <span>
#include <string>

#include "planner/rules/rule_pages.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// Pages of rules (schema stowage/explain/1): `rules` has one entry a page with `rule`, `severity`, the `verdict` it
/// gives, `rule_sets`, `judged_on`, `looks_at`, `reason`, `nearest_legal`, `source`.
Json explain_json(std::span<const rules::RulePage> pages);

/// The pages of such a document one after another, for a terminal.
std::string explain_text(const Json& document);

/// One line a page: id, severity and what it looks at. Lines are as long as their words.
std::string explain_list(const Json& document);

}  // namespace stowage::reports
