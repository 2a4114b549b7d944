#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// What a finding is made from.
enum class JudgedOn : std::uint8_t {
    scenario,   ///< the scenario, given or imported
    arguments,  ///< Megatron-LM's arguments, because no scenario can say what the rule looks at
};

/// A rule in words, for people to read.
struct RulePage {
    std::string_view id;
    RuleSets sets;
    Severity severity;
    JudgedOn judged_on;
    std::string_view condition;  ///< what breaks it: settings by name
    std::string_view reason;
    std::string_view nearest_legal;  ///< empty if there is nothing to change
    std::string_view source;
};

/// A page for each rule that a check can report: those of rules() in their order, then those about arguments. An id has
/// several where rule sets differ, or where it looks at a scenario and at arguments.
std::span<const RulePage> rule_pages();

/// The pages of an id, in order; upper and lower case are the same. Empty if there is no such rule.
std::vector<RulePage> pages_of(std::string_view id);

/// The rules that are judged where arguments are read, whatever the rule set.
std::span<const RulePage> argument_pages();

/// What breaks the rule, in words. Throws: std::logic_error if nobody wrote it (our bug).
std::string_view condition_of(const Rule& rule);

}  // namespace stowage::rules

template <>
struct stowage::types::EnumNames<stowage::rules::JudgedOn> {
    using JudgedOn = stowage::rules::JudgedOn;
    static constexpr std::array<std::pair<JudgedOn, std::string_view>, 2> values{
        {{JudgedOn::scenario, "scenario"}, {JudgedOn::arguments, "arguments"}}};
};
