#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/gpu/gpu_verbs.hpp"

namespace stowage::cli {

/// Where libstowage_gpu.so may lie, in the order in which it is looked for: beside the command (a build folder), then
/// in the folder of libraries of an installation.
std::vector<std::filesystem::path> gpu_library_places();

/// What `verb` asks of the library that links CUDA. The library is opened here, the file that STOWAGE_GPU_LIBRARY names
/// in place of the usual ones, and is never closed: an error that it threw is read after the verb ended.
/// Throws: NoDeviceError saying what happened: built without CUDA, no such file, the loader's words (a library of CUDA
/// that is missing), or a library of another version.
GpuVerbs& open_gpu_verbs(const std::string& verb);

}  // namespace stowage::cli
