#pragma once

#include <string>
#include <vector>

#include "profiler/injection/injection_settings.hpp"

namespace stowage::profiler {

/// Runs a command, found as a shell finds it, in this environment and waits for it. Interrupts from the terminal are
/// the command's affair meanwhile.
/// Result: what it exited with; 128 and the signal's number if one ended it, as shells have it.
/// Throws: types::Error if it cannot be started.
int run(const std::vector<std::string>& command, const Environment& environment);

/// The same without waiting for a user, for what it writes to standard output; nothing on failure.
std::string output_of(const std::vector<std::string>& command, const Environment& environment);

}  // namespace stowage::profiler
