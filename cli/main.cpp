#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verb.hpp"
#include "reports/version.hpp"
#include "scenarios/reader/nearest.hpp"
#include "scenarios/types/error.hpp"

namespace {

using stowage::types::ExitCode;

constexpr const char* kFooter =
    "Exit codes: 0 yes, 1 a bug of stowage, 2 the command line is wrong, 3 a file is wrong, 4 the answer is no,\n"
    "5 no device.\n"
    "Example:\n"
    "  stowage plan scenarios/llama3-70b-tp4-pp4.yaml --out plan.json --trace trace.json\n";

void add_commands(CLI::App& app, stowage::cli::Run& chosen, const std::vector<std::string>& behind_dashes) {
    using namespace stowage::cli;
    app.set_version_flag("--version", std::string("stowage ") + stowage::reports::kVersion);
    app.require_subcommand(1);
    app.footer(kFooter);
    add_plan_command(app, chosen);
    add_simulate_command(app, chosen);
    add_check_command(app, chosen);
    add_explain_command(app, chosen);
    add_report_command(app, chosen);
    add_import_command(app, chosen);
    add_export_command(app, chosen);
    add_validate_command(app, chosen);
    add_schema_command(app, chosen);
    add_execute_command(app, chosen);
    add_profile_command(app, chosen, behind_dashes);
    add_calibrate_command(app, chosen);
}

/// CLI11 would only say that a subcommand is required.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
    if (argc < 2 || argv[1][0] == '-') return;
    const std::string asked = argv[1];
    std::vector<std::string> names;
    for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(verb->get_name());
    if (std::find(names.begin(), names.end(), asked) != names.end()) return;
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string_view near = stowage::reader::nearest(asked, known);
    const std::string hint =
        near.empty() ? "'stowage --help' lists the verbs" : "did you mean '" + std::string(near) + "'?";
    throw stowage::cli::CommandLineError("there is no verb '" + asked + "'\nhint: " + hint);
}

/// `profile` takes a command behind `--`, whose arguments are its own. Result: the command; `argc` ends in front of it.
std::vector<std::string> cut_command(int& argc, char** argv) {
    if (argc < 2 || std::string_view(argv[1]) != "profile") return {};
    char** const end = argv + argc;
    char** const dashes = std::find(argv, end, std::string_view("--"));
    argc = static_cast<int>(dashes - argv);
    return dashes == end ? std::vector<std::string>{} : std::vector<std::string>(dashes + 1, end);
}

int run(int argc, char** argv) {
    CLI::App app("Plans activation offloading for Megatron-style transformer training.", "stowage");
    stowage::cli::Run chosen;
    const std::vector<std::string> command = cut_command(argc, argv);
    add_commands(app, chosen, command);
    refuse_unknown_verb(app, argc, argv);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::command_line);
    }
    return static_cast<int>(chosen());
}

/// A file that is opened while one of the three is closed would take its number, and get what is printed.
void occupy_standard_files() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(descriptor, F_GETFD) < 0) (void)open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int fail(const char* message, ExitCode code) {
    std::fputs(message, stderr);
    std::fputc('\n', stderr);
    return static_cast<int>(code);
}

/// What a device says of an error comes with that word.
std::string with_prefix(std::string_view message) {
    const std::string_view word = message.starts_with("error: ") ? "" : "error: ";
    return std::string("stowage: ").append(word).append(message);
}

}  // namespace

/// The only place that catches everything.
int main(int argc, char** argv) {
    occupy_standard_files();
    try {
        return run(argc, argv);
    } catch (const stowage::types::InputError& error) {
        return fail(error.what(), error.code());
    } catch (const stowage::types::Error& error) {
        return fail(with_prefix(error.what()).c_str(), error.code());
    } catch (const std::bad_alloc&) {
        return fail("stowage: error: this machine has not enough memory for it", ExitCode::our_bug);
    } catch (const std::exception& error) {
        return fail((std::string("stowage: error: a bug of stowage, please report it: ") + error.what()).c_str(),
                    ExitCode::our_bug);
    }
}
