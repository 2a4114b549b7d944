#pragma once

#include <stdexcept>
#include <string>

namespace stowage::types {

/// What the command line exits with.
enum class ExitCode : int {
    yes = 0,           ///< done
    our_bug = 1,       ///< std::logic_error and everything unexpected
    command_line = 2,  ///< the command line is wrong
    input = 3,         ///< a file is wrong
    no = 4,            ///< the answer is no: infeasible, illegal, validation failed
    device = 5,        ///< no device, no CUDA build, or the device failed
};

/// An error whose message a user can act on; carries the exit code of the command.
class Error : public std::runtime_error {
public:
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    [[nodiscard]] ExitCode code() const noexcept { return code_; }

private:
    ExitCode code_;
};

/// A file is wrong. The message is complete: file:line:column, the offending line with a caret, what was expected, a
/// hint; one such paragraph for each error found.
class InputError : public Error {
public:
    explicit InputError(const std::string& message) : Error(ExitCode::input, message) {}
};

/// The input is fine but asks for something this version cannot do; names it.
class UnsupportedError : public Error {
public:
    explicit UnsupportedError(const std::string& message) : Error(ExitCode::input, message) {}
};

}  // namespace stowage::types
