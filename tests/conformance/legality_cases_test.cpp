// The cases of legality_cases.yaml and field_verdicts.yaml, each through the reader and the rules as `check` takes it.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "planner/rules/legality.hpp"
#include "planner/rules/nearest_legal.hpp"
#include "scenarios/reader/megatron_arguments.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::tests {
namespace {

using Names = std::vector<std::string>;
using types::RuleSet;

constexpr const char* kFolder = STOWAGE_SOURCE_DIR "/tests/conformance/";

struct Expected {
    std::string verdict;
    std::optional<Names> rules;
    std::optional<Names> notes;
};

struct LegalityCase {
    std::string name;
    std::string what;
    bool as_arguments = false;
    std::string text;         ///< the scenario, or the arguments
    std::string unsupported;  ///< why it cannot be said
    std::string wrong_file;   ///< what the reader says
    std::map<RuleSet, Expected> expected;
};
void PrintTo(const LegalityCase& one, std::ostream* out) { *out << one.what; }

/// `base` with the keys of `change` in place of its own; a null takes a key away.
YAML::Node merged(const YAML::Node& base, const YAML::Node& change) {
    if (!base.IsMap() || !change.IsMap()) return YAML::Clone(change);
    YAML::Node result = YAML::Clone(base);
    for (const auto& entry : change) {
        const std::string key = entry.first.Scalar();
        if (entry.second.IsNull())
            result.remove(key);
        else
            result[key] = result[key] ? merged(result[key], entry.second) : YAML::Clone(entry.second);
    }
    return result;
}

std::string text_of(const YAML::Node& node) {
    std::ostringstream text;
    text << node << '\n';
    return text.str();
}

void take_expected(const YAML::Node& node, Expected& expected) {
    if (node["verdict"]) expected.verdict = node["verdict"].Scalar();
    if (node["rules"]) expected.rules = node["rules"].as<Names>();
    if (node["notes"]) expected.notes = node["notes"].as<Names>();
}

std::map<RuleSet, Expected> expected_of(const YAML::Node& node, const YAML::Node& rule_sets) {
    std::map<RuleSet, Expected> expected;
    for (const auto& [set, name] : types::enum_names<RuleSet>()) {
        const Names judged = rule_sets ? rule_sets.as<Names>() : Names{std::string(name)};
        if (std::find(judged.begin(), judged.end(), name) == judged.end()) continue;
        take_expected(node, expected[set]);
        const YAML::Node exceptions = node["except"];
        if (exceptions && exceptions[std::string(name)]) take_expected(exceptions[std::string(name)], expected[set]);
    }
    return expected;
}

LegalityCase read_case(const YAML::Node& node, const YAML::Node& file) {
    LegalityCase one;
    one.name = node["id"].Scalar();
    one.what = one.name + ", " + node["is"].Scalar();
    if (node["unsupported"]) one.unsupported = node["unsupported"].Scalar();
    if (node["wrong_file"]) one.wrong_file = node["wrong_file"].Scalar();
    if (node["arguments"]) {
        one.as_arguments = true;
        one.text = text_of(merged(file["base_arguments"], node["arguments"]));
    } else if (node["change"]) {
        one.text = text_of(merged(file["base"], node["change"]));
    }
    one.expected = expected_of(node, file["rule_sets"]);
    return one;
}

std::vector<LegalityCase> cases_of(const std::string& name) {
    std::vector<LegalityCase> cases;
    const YAML::Node file = YAML::LoadFile(kFolder + name);
    for (const YAML::Node& node : file["cases"]) cases.push_back(read_case(node, file));
    return cases;
}

std::vector<LegalityCase> all_cases() {
    std::vector<LegalityCase> cases = cases_of("legality_cases.yaml");
    for (LegalityCase& one : cases_of("field_verdicts.yaml")) cases.push_back(std::move(one));
    return cases;
}

/// A scenario and what was found before there was one.
struct Read {
    types::Scenario scenario;
    std::vector<reader::ArgumentFinding> findings;
    Names kept_rules;
};

Read read(const LegalityCase& one) {
    if (!one.as_arguments)
        return {reader::read_scenario_text(STOWAGE_SOURCE_DIR "/scenarios/case.yaml", one.text), {}, {}};
    const support::TemporaryFolder folder;
    std::ofstream(folder / "arguments.yaml") << one.text;
    reader::ImportedScenario imported = reader::import_megatron(
        folder / "arguments.yaml",
        {.node = STOWAGE_SOURCE_DIR "/scenarios/hardware/h100-8gpu.yaml", .nodes = 1, .world_size = {}},
        reader::ImportFor::judging);
    return {std::move(imported.scenario), std::move(imported.findings), std::move(imported.kept_rules)};
}

struct Judged {
    int gravest = 0;
    Names rules;
    Names notes;
};

void add(Judged& judged, const std::string& rule, rules::Severity severity) {
    judged.gravest = std::max(judged.gravest, static_cast<int>(severity));
    (severity == rules::Severity::note ? judged.notes : judged.rules).push_back(rule);
}

/// As `stowage check` does: the arguments' own findings behind those of the scenario.
Judged judge(Read given, RuleSet set) {
    given.scenario.rules = set;
    Judged judged;
    for (const rules::Finding& finding : rules::check(given.scenario, rules::own_choice(given.scenario)))
        if (std::find(given.kept_rules.begin(), given.kept_rules.end(), finding.rule) == given.kept_rules.end())
            add(judged, std::string(finding.rule), finding.severity);
    for (const reader::ArgumentFinding& finding : given.findings)
        add(judged, finding.rule, finding.illegal ? rules::Severity::illegal : rules::Severity::legal_with_changes);
    return judged;
}

class LegalityCases : public testing::TestWithParam<LegalityCase> {};

TEST_P(LegalityCases, AreJudgedAsMegatronDoes) {
    const LegalityCase& one = GetParam();
    if (!one.unsupported.empty()) return;  // counted below
    if (!one.wrong_file.empty()) {
        try {
            (void)read(one);
            FAIL() << "the reader takes it";
        } catch (const types::InputError& error) {
            EXPECT_NE(std::string(error.what()).find(one.wrong_file), std::string::npos) << error.what();
        }
        return;
    }
    const Read given = read(one);
    for (const auto& [set, expected] : one.expected) {
        const Judged judged = judge(given, set);
        EXPECT_EQ(types::name_of(static_cast<rules::Verdict>(judged.gravest)), expected.verdict) << types::name_of(set);
        ASSERT_TRUE(expected.rules.has_value()) << "the case names no rules";
        EXPECT_EQ(judged.rules, *expected.rules) << types::name_of(set);
        if (expected.notes) {
            EXPECT_EQ(judged.notes, *expected.notes) << types::name_of(set);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, LegalityCases, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<LegalityCase>& one) {
                             std::string name = one.param.name;
                             for (char& letter : name)
                                 if (letter == '-' || letter == ' ') letter = '_';
                             return name;
                         });

std::int64_t unsupported(const std::vector<LegalityCase>& cases) {
    return std::count_if(cases.begin(), cases.end(), [](const LegalityCase& one) { return !one.unsupported.empty(); });
}

// A key that the language gains turns one of these into a case.
TEST(LegalityCaseFiles, SayWhatTheyCannotSay) {
    EXPECT_EQ(unsupported(cases_of("legality_cases.yaml")), 1);
    EXPECT_EQ(unsupported(cases_of("field_verdicts.yaml")), 0);
}

// What plan would refuse is never without a way out.
TEST(LegalityCaseFiles, HaveALegalNeighbourForEachOfTheirScenarios) {
    for (const LegalityCase& one : all_cases()) {
        if (!one.unsupported.empty() || !one.wrong_file.empty()) continue;
        types::Scenario scenario = read(one).scenario;
        for (const auto& [set, expected] : one.expected) {
            scenario.rules = set;
            const types::OffloadChoice choice = rules::own_choice(scenario);
            const auto nearest = rules::nearest_legal(scenario, choice);
            const bool refused = rules::worst(rules::check(scenario, choice)) >= rules::Verdict::hazard;
            EXPECT_EQ(nearest.empty(), !refused) << one.what << " under " << types::name_of(set);
        }
    }
}

TEST(LegalityCaseFiles, BreakEveryRule) {
    std::set<std::string> fired;
    for (const LegalityCase& one : all_cases()) {
        if (!one.unsupported.empty() || !one.wrong_file.empty()) continue;
        for (const auto& [set, expected] : one.expected) {
            const Judged judged = judge(read(one), set);
            fired.insert(judged.rules.begin(), judged.rules.end());
            fired.insert(judged.notes.begin(), judged.notes.end());
        }
    }
    for (const rules::Rule& rule : rules::rules())
        EXPECT_TRUE(fired.count(std::string(rule.id)) == 1) << rule.id << " never fires";
}

}  // namespace
}  // namespace stowage::tests
