#pragma once

// Runs a command and records, from within, every process of it that uses CUDA.
//
//   InjectionRequest request;
//   request.command = {"python", "train.py"};
//   const InjectedRun run = run_injected(request);
//   run.recording();      // activities, calls, NVTX ranges, ...; attribute.hpp says whose they were
//   run.exit_status;      // the command's own
//
// The driver loads libstowage_inject.so into the processes, because CUDA_INJECTION64_PATH names it; it writes a file at
// the end of each, which is read here. Needs no CUDA in this process.
//
// Tested by: tests/profiler/injection/run_injected_test.cpp, injection_gpu_test.cpp with a device.

#include <filesystem>
#include <string>
#include <vector>

#include "profiler/injection/injection_settings.hpp"
#include "profiler/injection/raw_file.hpp"

namespace stowage::profiler {

struct InjectionRequest {
    std::vector<std::string> command;
    InjectionSettings settings;  ///< `out` is set by the launcher
    Environment environment;     ///< added to that of this process
    std::filesystem::path
        injected_library;         ///< libstowage_inject.so; empty: beside this program, see injection_library
    std::filesystem::path cupti;  ///< libcupti.so.13; empty: what the command will load, see find_cupti
};

struct InjectedRun {
    int exit_status = 0;                     ///< 128 and the signal's number if one ended it
    std::vector<InjectedProcess> processes;  ///< that used CUDA, those with the most activities first
    std::vector<std::string> notes;          ///< what a user should know: nothing recorded, records lost, ...

    /// Of the first process; empty if there is none.
    [[nodiscard]] const Recording& recording() const;
};

/// The environment that the command gets. Throws: CuptiError if another tool is injected already.
Environment injected_environment(const InjectionRequest& request, const std::filesystem::path& out);

/// The library to inject: what STOWAGE_INJECT_LIBRARY names, or beside this program, or in the folder of libraries of
/// an installation. Throws: CuptiError if it is nowhere, with where it was looked for.
std::filesystem::path injection_library(const Environment& environment);

/// Throws: CuptiError if the library is missing, or another tool is injected already; types::Error if the command
/// cannot be started. That a command fails, or leaves nothing, is no error: `exit_status` and `notes` say so.
InjectedRun run_injected(const InjectionRequest& request);

}  // namespace stowage::profiler
