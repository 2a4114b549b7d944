#include <fmt/format.h>

#include <memory>

#include "cli/inputs.hpp"
#include "cli/verb.hpp"
#include "planner/rules/legality.hpp"
#include "reports/check_report.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

struct CheckOptions {
    CommonOptions common;
    std::string scenario;
    Overrides overrides;
    std::optional<std::string> megatron;
};

types::ExitCode run_check(const CheckOptions& options) {
    if (options.megatron)
        throw CommandLineError("--megatron is not in this version; write the arguments as a scenario");
    if (options.scenario.empty()) throw CommandLineError("check: SCENARIO is required");
    types::Scenario scenario = reader::read_scenario(options.scenario);
    options.overrides.apply(scenario);
    const reports::Json document = reports::check_json(scenario);
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
    verb->add_option("--megatron", options->megatron, "not in this version")->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_check(*options); }; });
}

}  // namespace stowage::cli
