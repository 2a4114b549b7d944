#include <fmt/format.h>

#include <memory>

#include "cli/outputs.hpp"
#include "cli/profile_command.hpp"
#include "cli/profile_scenario.hpp"
#include "cli/verb.hpp"
#include "reports/recording_report.hpp"
#include "scenarios/recording/recording_file.hpp"

namespace stowage::cli {
namespace {

struct ProfileOptions {
    CommonOptions common;
    std::string out;
    ScenarioProfile scenario;
    CommandProfile command;
};

void refuse_combinations(const ProfileOptions& options) {
    const ScenarioProfile& scenario = options.scenario;
    const bool has_command = !options.command.command.empty();
    if (has_command != scenario.input.empty())
        throw CommandLineError(has_command ? "profile: found a scenario and a command, expected one of them"
                                           : "profile: expected a scenario, or -- and a command");
    if (has_command) return;
    refuse_to_replace(scenario.input, "--out", options.out);
    if (!scenario.gemm_table) return;
    refuse_to_replace(scenario.input, "--gemm-table", *scenario.gemm_table);
    refuse_to_replace(*scenario.gemm_table, "--out", options.out);
}

void write(const ProfileOptions& options, reports::OutputFile& out, const recording::Recording& recording) {
    const std::string text = recording::recording_text(recording);
    out.write(text);
    out.commit();
    say(options.common, fmt::format("wrote {}: {} KiB", options.out, (text.size() + 1023) / 1024));
}

types::ExitCode answer(const CommonOptions& common, const recording::Recording& recording) {
    const reports::Json summary = reports::recording_summary(recording);
    if (common.json)
        print(reports::to_text(summary));
    else if (!common.quiet)
        print(reports::recording_text(summary));
    return types::ExitCode::yes;
}

types::ExitCode run_profile(const ProfileOptions& options) {
    refuse_combinations(options);
    const bool injected = !options.command.command.empty();
    types::Scenario scenario;
    if (!injected) scenario = read_profiled_scenario(options.common, options.scenario);
    reports::OutputFile out(options.out);  // before hours have gone into it
    const recording::Recording recording =
        injected ? profile_command(options.common, options.command)
                 : profile_scenario(options.common, options.scenario, std::move(scenario));
    write(options, out, recording);
    return answer(options.common, recording);
}

}  // namespace

void add_profile_command(CLI::App& app, Run& chosen, const std::vector<std::string>& behind_dashes) {
    const auto options = std::make_shared<ProfileOptions>();
    options->command.command = behind_dashes;
    CLI::App* const verb = add_verb(app, "profile",
                                    "Records what one rank's step, or a command, does on a GPU: 'plan' and "
                                    "'validate' predict from it.",
                                    "stowage profile scenarios/dense-8x4096.yaml --out recording.json\n"
                                    "  stowage profile --out recording.json -- python train.py",
                                    options->common);
    verb->add_option("SCENARIO", options->scenario.input, "scenario file (YAML) with implementation: stowage");
    verb->add_option("--out", options->out, "write the recording here (JSON)")->required()->type_name("FILE");
    options->scenario.add_to(*verb);
    options->command.add_to(*verb);
    verb->callback([options, &chosen] { chosen = [options] { return run_profile(*options); }; });
}

}  // namespace stowage::cli
