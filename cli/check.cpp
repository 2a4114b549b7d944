#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/hardware_choice.hpp"
#include "cli/inputs.hpp"
#include "cli/verb.hpp"
#include "planner/rules/legality.hpp"
#include "reports/check_report.hpp"
#include "scenarios/reader/megatron_arguments.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

struct CheckOptions {
    CommonOptions common;
    std::string scenario;
    Overrides overrides;
    std::optional<std::string> megatron;
    HardwareOptions hardware;
};

bool is_word_letter(char letter) {
    return letter == '_' || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= '0' && letter <= '9');
}

/// Where `word` stands in the text as a word of its own.
std::size_t find_word(const std::string& text, const std::string& word) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || !is_word_letter(text[at - 1])) && (end == text.size() || !is_word_letter(text[end]))) return at;
    }
    return std::string::npos;
}

/// The place of the first key that the message names and that was given.
std::optional<std::string> place_of(const std::string& message, const reader::SourceMap& where) {
    std::size_t first = std::string::npos;
    std::string key;
    for (const std::string& path : where.paths()) {
        const std::string name = path.substr(path.rfind('.') + 1);
        const std::size_t at = name.empty() ? std::string::npos : find_word(message, name);
        if (at >= first) continue;
        first = at;
        key = path;
    }
    if (key.empty()) return std::nullopt;
    return reader::format_place(where.find(key));
}

/// The verdict of the findings, from the mildest word to the gravest.
std::string worst(const reports::Json& findings) {
    int gravest = 0;
    for (const reports::Json& finding : findings) {
        const auto severity = types::parse_name<rules::Severity>(finding.at("severity").get<std::string>());
        gravest = std::max(gravest, static_cast<int>(severity.value_or(rules::Severity::note)));
    }
    return std::string(types::name_of(static_cast<rules::Verdict>(gravest)));
}

/// What the rules say, each finding with its place in the file.
reports::Json judge(const types::Scenario& scenario, const reader::SourceMap& where) {
    reports::Json document = reports::check_json(scenario);
    for (reports::Json& finding : document["findings"])
        if (const auto place = place_of(finding.at("message").get<std::string>(), where)) finding["at"] = *place;
    return document;
}

/// Takes away what the scenario only seems to break.
void drop_kept_rules(reports::Json& document, const reader::ImportedScenario& imported) {
    reports::Json left = reports::Json::array();
    const auto& kept = imported.kept_rules;
    for (reports::Json& finding : document["findings"])
        if (std::find(kept.begin(), kept.end(), finding.at("rule").get<std::string>()) == kept.end())
            left.push_back(std::move(finding));
    document["findings"] = std::move(left);
}

/// Adds what Megatron does about the arguments themselves.
void add_argument_findings(reports::Json& document, const reader::ImportedScenario& imported) {
    for (const reader::ArgumentFinding& finding : imported.findings) {
        const auto severity = finding.illegal ? rules::Severity::illegal : rules::Severity::legal_with_changes;
        document["findings"].push_back({{"rule", finding.rule},
                                        {"severity", std::string(types::name_of(severity))},
                                        {"message", finding.message},
                                        {"nearest_legal", finding.nearest_legal},
                                        {"at", reader::format_place(finding.at)}});
    }
    document["verdict"] = worst(document.at("findings"));
    if (document["verdict"] != "illegal" && document["verdict"] != "hazard")
        document["nearest"] = reports::Json::array();
    document["notes"] = imported.notes;
}

reports::Json check_scenario_file(const CheckOptions& options) {
    reader::LoadedScenario loaded = reader::load_scenario(options.scenario);
    options.overrides.apply(loaded.scenario);
    return judge(loaded.scenario, loaded.where);
}

reports::Json check_arguments(const CheckOptions& options) {
    reader::ImportedScenario imported =
        reader::import_megatron(*options.megatron, options.hardware.choose("."), reader::ImportFor::judging);
    options.overrides.apply(imported.scenario);
    reports::Json document = judge(imported.scenario, imported.where);
    drop_kept_rules(document, imported);
    add_argument_findings(document, imported);
    for (const std::string& note : imported.notes) say(options.common, note);
    return document;
}

types::ExitCode run_check(const CheckOptions& options) {
    if (options.megatron && !options.scenario.empty()) throw CommandLineError("check: found SCENARIO and --megatron");
    if (!options.megatron && options.scenario.empty())
        throw CommandLineError("check: SCENARIO or --megatron is required");
    const reports::Json document = options.megatron ? check_arguments(options) : check_scenario_file(options);
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(reports::check_text(document));
    return document.at("verdict") == "illegal" ? types::ExitCode::no : types::ExitCode::yes;
}

}  // namespace

void add_check_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<CheckOptions>();
    CLI::App* const verb =
        add_verb(app, "check", "Says whether Megatron takes a scenario's offload values, and the nearest it takes.",
                 "stowage check scenario.yaml --rules core-0.18", options->common);
    verb->add_option("SCENARIO", options->scenario, "scenario file (YAML)");
    verb->add_option("--rules", options->overrides.rules, "Megatron-LM's version in place of the scenario's")
        ->type_name("RULES");
    verb->add_option("--megatron", options->megatron, "Megatron-LM's arguments (YAML) in place of a scenario")
        ->type_name("FILE");
    options->hardware.add_to(*verb);
    verb->callback([options, &chosen] { chosen = [options] { return run_check(*options); }; });
}

}  // namespace stowage::cli
