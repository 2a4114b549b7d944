#pragma once

// `execute --stand-ins`: a job whose layers are executed as work of the same class, length and traffic.

#include <optional>
#include <string>

#include "planner/search/job.hpp"

namespace stowage::cli {

struct StandInOptions {
    std::optional<std::string> recording;  ///< whose times, and layers if it has no scenario; none: estimates
    std::string input;                     ///< the scenario or plan that the verb read
};

/// Gives the kernels of every rank their times and makes stand-ins of them. No framework stands between them and their
/// launches, so that the job's host has none to wait for either.
/// Throws: types::InputError as use_recording does; types::UnsupportedError as program::make_stand_ins does.
void use_stand_ins(search::Job& job, const StandInOptions& options);

}  // namespace stowage::cli
