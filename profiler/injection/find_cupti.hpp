#pragma once

// Which CUPTI a command will load. NVTX hands ranges to the library that NVTX_INJECTION64_PATH names, and CUPTI makes
// records of them only if it is the very one that records: PyTorch brings its own.
//
// Tested by: tests/profiler/injection/find_cupti_test.cpp.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "profiler/injection/injection_settings.hpp"

namespace stowage::profiler {

/// The interpreter, if the command is Python or a script that says that it is; nothing otherwise.
std::optional<std::string> python_of(const std::vector<std::string>& command, const Environment& environment);

/// libcupti.so.13 as it lies in folders that Python looks for modules in: beside PyTorch, or in its own package.
std::optional<std::filesystem::path> cupti_below(const std::vector<std::filesystem::path>& python_folders);

/// In the order of: what NVTX_INJECTION64_PATH names already; what Python, asked for its folders, has (a process is
/// started for that); LD_LIBRARY_PATH; the toolkit that CUDA_HOME or CUDA_PATH names; /usr/local/cuda; the system.
std::optional<std::filesystem::path> find_cupti(const std::vector<std::string>& command,
                                                const Environment& environment);

}  // namespace stowage::profiler
