#include "reports/check_report.hpp"

#include <fmt/format.h>

#include "planner/rules/legality.hpp"
#include "planner/rules/nearest_legal.hpp"
#include "reports/outcome_json.hpp"
#include "reports/table.hpp"

namespace stowage::reports {
namespace {

/// Names of the offload values that are auto.
Json left_open(const types::Scenario& scenario) {
    Json names = Json::array();
    if (!scenario.offload.offload_modules) names.push_back("offload_modules");
    if (!scenario.offload.activation_offload_fraction) names.push_back("activation_offload_fraction");
    return names;
}

/// The nearest configurations that `plan` would take, of one that it would not.
Json neighbours(const types::Scenario& scenario) {
    Json list = Json::array();
    for (const rules::LegalNeighbour& one : rules::nearest_legal(scenario, rules::own_choice(scenario)))
        list.push_back({{"changes", one.changes}, {"verdict", std::string(types::name_of(one.verdict))}});
    return list;
}

}  // namespace

Json check_json(const types::Scenario& scenario) {
    const std::vector<rules::Finding> findings = rules::check(scenario, rules::own_choice(scenario));
    Json json;
    json["schema"] = "stowage/check/1";
    json["scenario_name"] = scenario.name;
    json["rules"] = std::string(types::name_of(scenario.rules));
    json["verdict"] = std::string(types::name_of(rules::worst(findings)));
    json["choice"] = choice_json(rules::own_choice(scenario));
    json["left_to_the_planner"] = left_open(scenario);
    json["findings"] = Json::array();
    for (const rules::Finding& finding : findings)
        json["findings"].push_back({{"rule", std::string(finding.rule)},
                                    {"severity", std::string(types::name_of(finding.severity))},
                                    {"message", finding.message},
                                    {"nearest_legal", finding.nearest_legal}});
    json["nearest"] = neighbours(scenario);
    return json;
}

std::string check_text(const Json& check) {
    std::string verdict = check.at("verdict").get<std::string>();
    for (char& letter : verdict)
        if (letter == '_') letter = ' ';
    std::string text = fmt::format("{}: {} (rules {})\n", check.at("scenario_name").get<std::string>(), verdict,
                                   check.at("rules").get<std::string>());
    if (!check.at("left_to_the_planner").empty())
        text += "  judged without the values that are auto; 'stowage plan' only takes legal ones\n";
    for (const Json& finding : check.at("findings")) {
        const std::string line =
            fmt::format("{} {}: {}", finding.at("severity").get<std::string>(), finding.at("rule").get<std::string>(),
                        finding.at("message").get<std::string>());
        text += fmt::format("  {}\n", wrapped(line, 4));
        const std::string nearest = finding.at("nearest_legal").get<std::string>();
        if (!nearest.empty()) text += fmt::format("    {}\n", wrapped("nearest: " + nearest, 6));
        if (finding.contains("at")) text += fmt::format("    at {}\n", finding.at("at").get<std::string>());
    }
    for (const Json& one : check.at("nearest")) {
        std::string changes;
        for (const Json& change : one.at("changes"))
            changes += (changes.empty() ? "" : ", and ") + change.get<std::string>();
        const bool changed = one.at("verdict") == "legal_with_changes";
        text += fmt::format("  {}\n", wrapped((changed ? "legal with changes: " : "legal: ") + changes, 4));
    }
    return text;
}

}  // namespace stowage::reports
