#include "reports/rule_report.hpp"

#include <fmt/format.h>

#include "planner/rules/legality.hpp"
#include "reports/table.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kLabel = 13;

rules::Verdict verdict_of(rules::Severity severity) {
    const rules::Finding finding{.rule = {}, .severity = severity, .message = {}, .nearest_legal = {}};
    return rules::worst({&finding, 1});
}

Json rule_sets(rules::RuleSets sets) {
    Json names = Json::array();
    for (const auto& [set, name] : types::enum_names<types::RuleSet>())
        if (sets.contains(set)) names.push_back(std::string(name));
    return names;
}

Json page_json(const rules::RulePage& page) {
    return {{"rule", page.id},
            {"severity", types::name_of(page.severity)},
            {"verdict", types::name_of(verdict_of(page.severity))},
            {"rule_sets", rule_sets(page.sets)},
            {"judged_on", types::name_of(page.judged_on)},
            {"looks_at", page.condition},
            {"reason", page.reason},
            {"nearest_legal", page.nearest_legal},
            {"source", page.source}};
}

std::string words(const Json& page, const char* key) {
    std::string text = page.at(key).get<std::string>();
    for (char& letter : text)
        if (letter == '_') letter = ' ';
    return text;
}

std::string labelled(const std::string& label, const std::string& text) {
    return fmt::format("  {:<{}}{}\n", label, kLabel, wrapped(text, kLabel + 2));
}

std::string sets_words(const Json& page) {
    const Json& sets = page.at("rule_sets");
    if (sets.size() == types::enum_names<types::RuleSet>().size()) return "all";
    std::string names;
    for (const Json& set : sets) names += (names.empty() ? "" : ", ") + set.get<std::string>();
    return names;
}

std::string verdict_words(const Json& page) {
    if (page.at("severity") == "note") return "stays as it is: the rule only tells something";
    return words(page, "verdict") +
           (page.at("severity") == "hazard" ? ": Megatron accepts it, 'stowage plan' does not" : std::string());
}

std::string page_text(const Json& page) {
    std::string text = fmt::format("{} ({})\n", page.at("rule").get<std::string>(), words(page, "severity"));
    text += labelled("verdict", verdict_words(page));
    text += labelled("rule sets", sets_words(page));
    if (page.at("judged_on") == "arguments")
        text += labelled("judged on", "Megatron-LM's arguments, while 'stowage check --megatron' reads them");
    text += labelled("looks at", page.at("looks_at").get<std::string>());
    text += labelled("reason", page.at("reason").get<std::string>());
    const std::string nearest = page.at("nearest_legal").get<std::string>();
    text += labelled("nearest", nearest.empty() ? "Nothing to change." : nearest);
    return text + labelled("source", page.at("source").get<std::string>());
}

}  // namespace

Json explain_json(std::span<const rules::RulePage> pages) {
    Json document{{"schema", "stowage/explain/1"}, {"rules", Json::array()}};
    for (const rules::RulePage& page : pages) document["rules"].push_back(page_json(page));
    return document;
}

std::string explain_text(const Json& document) {
    std::string text;
    for (const Json& page : document.at("rules")) text += (text.empty() ? "" : "\n") + page_text(page);
    return text;
}

std::string explain_list(const Json& document) {
    std::string text;
    for (const Json& page : document.at("rules"))
        text += fmt::format("{:<4} {:<18} {}\n", page.at("rule").get<std::string>(), words(page, "severity"),
                            page.at("looks_at").get<std::string>());
    return text;
}

}  // namespace stowage::reports
