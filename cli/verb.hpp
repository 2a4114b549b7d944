#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "scenarios/types/error.hpp"

namespace stowage::cli {

/// What every verb takes.
struct CommonOptions {
    bool json = false;   ///< the answer as JSON on standard output and nothing else there
    bool quiet = false;  ///< no answer for people and no progress; errors still go to standard error
};

/// The command line asks for something that is wrong or that this version has not. Exit code 2.
class CommandLineError : public types::Error {
public:
    explicit CommandLineError(const std::string& message) : Error(types::ExitCode::command_line, message) {}
};

/// Needs a device, or the part of stowage that drives one. Exit code 5.
class NoDeviceError : public types::Error {
public:
    explicit NoDeviceError(const std::string& message) : Error(types::ExitCode::device, message) {}
};

/// The verb that the command line chose, to be run once all of it is read.
using Run = std::function<types::ExitCode()>;

/// Adds a verb with an example in its help, and the options every verb takes.
CLI::App* add_verb(CLI::App& app, const std::string& name, const std::string& about, const std::string& example,
                   CommonOptions& common);

/// Standard output. Throws: types::InputError if it cannot be written (a full disk, a closed pipe).
void print(const std::string& text);

/// A line of what is going on, on standard error; nothing with --quiet.
void say(const CommonOptions& common, const std::string& line);

// Each verb in a file of its own: adds itself, and sets `chosen` when the command line names it.
void add_plan_command(CLI::App& app, Run& chosen);
void add_simulate_command(CLI::App& app, Run& chosen);
void add_check_command(CLI::App& app, Run& chosen);
void add_explain_command(CLI::App& app, Run& chosen);
void add_report_command(CLI::App& app, Run& chosen);
void add_export_command(CLI::App& app, Run& chosen);
void add_import_command(CLI::App& app, Run& chosen);
void add_schema_command(CLI::App& app, Run& chosen);
void add_execute_command(CLI::App& app, Run& chosen);
/// `behind_dashes`: the command behind `--`, if there is one.
void add_profile_command(CLI::App& app, Run& chosen, const std::vector<std::string>& behind_dashes);
void add_calibrate_command(CLI::App& app, Run& chosen);
void add_validate_command(CLI::App& app, Run& chosen);

}  // namespace stowage::cli
