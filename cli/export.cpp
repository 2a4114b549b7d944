#include <memory>

#include "cli/verb.hpp"
#include "reports/document.hpp"
#include "reports/plan_json.hpp"

namespace stowage::cli {
namespace {

struct ExportOptions {
    CommonOptions common;
    std::string what;
    std::string plan;
};

/// `NAME=VALUE` and one argument a line, so that $(...) pastes them into a command.
std::string lines(const reports::Json& flags) {
    std::string text;
    for (const auto& argument : flags.at("arguments")) text += argument.get<std::string>() + "\n";
    return text;
}

std::string environment_words(const reports::Json& flags) {
    std::string words;
    for (const auto& [name, value] : flags.at("environment").items())
        words += (words.empty() ? "" : " ") + name + "=" + value.get<std::string>();
    return words;
}

types::ExitCode run_export(const ExportOptions& options) {
    const reports::Json plan = reports::read_document(options.plan, reports::kPlanSchema);
    return reports::reading(options.plan, [&] {
        if (plan.at("choice").is_null()) {
            say(CommonOptions{}, "the plan is infeasible: there are no flags to give");
            return types::ExitCode::no;
        }
        const reports::Json& flags = plan.at("megatron_flags");
        if (options.common.json) {
            print(reports::to_text(flags));
            return types::ExitCode::yes;
        }
        print(lines(flags));
        const std::string environment = environment_words(flags);
        if (!environment.empty()) say(options.common, "set in the environment: " + environment);
        if (flags.at("arguments").empty()) say(options.common, "no flag is needed");
        return types::ExitCode::yes;
    });
}

}  // namespace

void add_export_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ExportOptions>();
    CLI::App* const verb =
        add_verb(app, "export", "Prints a plan as Megatron-LM's arguments, one a line.",
                 "torchrun pretrain_gpt.py $(stowage export megatron-flags plan.json) ...", options->common);
    verb->add_option("WHAT", options->what, "megatron-flags")->required()->check(CLI::IsMember({"megatron-flags"}));
    verb->add_option("PLAN", options->plan, "plan that 'stowage plan' wrote (JSON)")->required();
    verb->callback([options, &chosen] { chosen = [options] { return run_export(*options); }; });
}

}  // namespace stowage::cli
