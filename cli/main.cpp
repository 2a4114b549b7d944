#include <cstdio>
#include <exception>

#include "cli/verb.hpp"
#include "reports/version.hpp"
#include "scenarios/types/error.hpp"

namespace {

using stowage::types::ExitCode;

constexpr const char* kFooter =
    "Exit codes: 0 yes, 1 a bug of stowage, 2 the command line is wrong, 3 a file is wrong, 4 the answer is no,\n"
    "5 no device.\n"
    "Example:\n"
    "  stowage plan scenarios/llama3-70b-tp4-pp4.yaml --out plan.json --trace trace.json";

void add_commands(CLI::App& app, stowage::cli::Run& chosen) {
    using namespace stowage::cli;
    app.set_version_flag("--version", std::string("stowage ") + stowage::reports::kVersion);
    app.require_subcommand(1);
    app.footer(kFooter);
    add_plan_command(app, chosen);
    add_simulate_command(app, chosen);
    add_check_command(app, chosen);
    add_report_command(app, chosen);
    add_export_command(app, chosen);
    add_schema_command(app, chosen);
    add_device_commands(app, chosen);
    add_later_commands(app, chosen);
}

int run(int argc, char** argv) {
    CLI::App app("Plans activation offloading for Megatron-style transformer training.", "stowage");
    stowage::cli::Run chosen;
    add_commands(app, chosen);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::command_line);
    }
    return static_cast<int>(chosen());
}

int fail(const char* message, ExitCode code) {
    std::fputs(message, stderr);
    std::fputc('\n', stderr);
    return static_cast<int>(code);
}

}  // namespace

/// The only place that catches everything.
int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const stowage::types::InputError& error) {
        return fail(error.what(), error.code());
    } catch (const stowage::types::Error& error) {
        return fail((std::string("stowage: error: ") + error.what()).c_str(), error.code());
    } catch (const std::bad_alloc&) {
        return fail("stowage: error: this machine has not enough memory for it", ExitCode::our_bug);
    } catch (const std::exception& error) {
        return fail((std::string("stowage: error: a bug of stowage, please report it: ") + error.what()).c_str(),
                    ExitCode::our_bug);
    }
}
