#pragma once

#include <string>
#include <vector>

#include "cli/verb.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::cli {

/// A command that is recorded from within, and what its recording calls it.
struct CommandProfile {
    std::vector<std::string> command;
    std::string implementation = "megatron";

    void add_to(CLI::App& verb);
};

/// Runs the command with the recorder injected and turns what the process with most activities did into a recording:
/// one step for each NVTX range "stowage:step", whose time it was by the ranges inside
/// (profiler/cupti/range_marks.hpp). Throws: CuptiError if it cannot be recorded; NoDeviceError if nothing was, with
/// why; types::Error, exit code 4, if the command failed.
recording::Recording profile_command(const CommonOptions& common, const CommandProfile& profile);

}  // namespace stowage::cli
