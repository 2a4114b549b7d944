#pragma once

#include <algorithm>
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

inline constexpr RuleSets kAllSets{types::RuleSet::pr_3219, types::RuleSet::core_0_18, types::RuleSet::core_0_19,
                                   types::RuleSet::main_2026_08, types::RuleSet::dev};
/// Since offloading inside the graphs of single layers reached the main branch.
inline constexpr RuleSets kSince019{types::RuleSet::core_0_19, types::RuleSet::main_2026_08, types::RuleSet::dev};
/// Since cuda_graph_impl has full_iteration and copies under way can be capped.
inline constexpr RuleSets kSince018{types::RuleSet::core_0_18, types::RuleSet::core_0_19, types::RuleSet::main_2026_08,
                                    types::RuleSet::dev};
/// Those whose layers switch off what a graph's boundary forbids and join in-graph copies; core-0.18 has neither.
inline constexpr RuleSets kInGraph{types::RuleSet::pr_3219, types::RuleSet::core_0_19, types::RuleSet::main_2026_08,
                                   types::RuleSet::dev};

/// The offending setting, in the words of the scenario, if a rule is broken; nothing if it is kept.
using Offence = std::optional<std::string>;

/// What a rule judges: a job, and one concrete policy for it.
struct Case {
    const types::Scenario& scenario;
    const types::OffloadChoice& choice;

    [[nodiscard]] bool offloads() const { return !choice.modules.empty(); }
    [[nodiscard]] bool offloads(types::Module module) const { return choice.modules.contains(module); }
    [[nodiscard]] types::CudaGraphImpl impl() const { return scenario.cuda_graph.cuda_graph_impl; }
    [[nodiscard]] bool captures() const { return impl() != types::CudaGraphImpl::none; }
    /// Whether stowage's own layers run, which know nothing of Megatron's hooks and checkpoints.
    [[nodiscard]] bool own_layers() const { return scenario.implementation == types::Implementation::stowage; }
    [[nodiscard]] bool recomputes(types::RecomputeModule module) const { return scenario.recompute.selects(module); }
    /// Whether the list of graph modules has it.
    [[nodiscard]] bool lists(types::CudaGraphModule module) const {
        const auto& listed = scenario.cuda_graph.cuda_graph_modules;
        return std::find(listed.begin(), listed.end(), module) != listed.end();
    }
    /// Whether a graph holds that part of a layer: by name, or because it holds the whole layer or iteration.
    [[nodiscard]] bool captures(types::CudaGraphModule module) const {
        return captures() && (scenario.cuda_graph.cuda_graph_modules.empty() || lists(module));
    }
    [[nodiscard]] std::optional<std::int64_t> inflight_cap() const {
        const auto& own = choice.max_inflight_offloads;
        return own ? own : scenario.offload.fine_grained_offloading_max_inflight_offloads;
    }
    [[nodiscard]] bool delays() const {
        return choice.delay_until_cuda_graph || scenario.offload.delay_offload_until_cuda_graph.value_or(false);
    }
};

/// One rule of legality, as data. An id may have several entries where rule sets differ; no two share a set.
struct Rule {
    std::string_view id;
    RuleSets sets;
    Severity severity;
    Offence (*offence)(const Case&);
    std::string_view reason;         ///< one sentence
    std::string_view nearest_legal;  ///< one sentence: the smallest change that keeps the rule; a note may have none
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
