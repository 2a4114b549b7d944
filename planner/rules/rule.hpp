#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "scenarios/types/enum_names.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// What a broken rule means for the configuration; later ones outweigh earlier ones.
enum class Severity : std::uint8_t {
    note,                ///< worth knowing; leaves the verdict alone
    legal_with_changes,  ///< accepted, but something asked for is changed or has no effect
    hazard,              ///< accepted, and known to crash or misbehave
    illegal,             ///< refused by Megatron
};

enum class Verdict : std::uint8_t { legal, legal_with_changes, hazard, illegal };

/// The rule sets that a rule is in.
class RuleSets {
public:
    constexpr RuleSets(std::initializer_list<types::RuleSet> sets) {
        for (const types::RuleSet set : sets) bits_ |= bit(set);
    }
    [[nodiscard]] constexpr bool contains(types::RuleSet set) const { return (bits_ & bit(set)) != 0; }

private:
    static constexpr unsigned bit(types::RuleSet set) { return 1U << static_cast<unsigned>(set); }
    unsigned bits_ = 0;
};

/// What a rule judges: a job, and one concrete policy for it.
struct Case {
    const types::Scenario& scenario;
    const types::OffloadChoice& choice;

    [[nodiscard]] bool offloads() const { return !choice.modules.empty(); }
};

/// One rule of legality, as data. An id may have several entries where rule sets differ; no two share a set.
struct Rule {
    std::string_view id;
    RuleSets sets;
    Severity severity;
    /// The offending setting, in the words of the scenario, if the rule is broken; nothing if it is kept.
    std::optional<std::string> (*offence)(const Case&);
    std::string_view reason;         ///< one sentence
    std::string_view nearest_legal;  ///< one sentence: the smallest change that keeps the rule
    std::string_view source;         ///< where Megatron-LM says or does so
};

}  // namespace stowage::rules

template <>
struct stowage::types::EnumNames<stowage::rules::Severity> {
    using Severity = stowage::rules::Severity;
    static constexpr std::array<std::pair<Severity, std::string_view>, 4> values{
        {{Severity::note, "note"},
         {Severity::legal_with_changes, "legal_with_changes"},
         {Severity::hazard, "hazard"},
         {Severity::illegal, "illegal"}}};
};

template <>
struct stowage::types::EnumNames<stowage::rules::Verdict> {
    using Verdict = stowage::rules::Verdict;
    static constexpr std::array<std::pair<Verdict, std::string_view>, 4> values{
        {{Verdict::legal, "legal"},
         {Verdict::legal_with_changes, "legal_with_changes"},
         {Verdict::hazard, "hazard"},
         {Verdict::illegal, "illegal"}}};
};
