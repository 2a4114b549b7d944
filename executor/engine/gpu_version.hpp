#pragma once

// So that a command never asks something of a library that was built for another one.

namespace stowage::executor {

/// Of what execution.hpp says: counted up when any type in it, or in the headers it includes, changes.
inline constexpr int kGpuVerbsVersion = 1;

/// The library exports by this name which one it was built with: `extern "C" int stowage_gpu_version()`.
inline constexpr const char* kGpuVersionSymbol = "stowage_gpu_version";
using GpuVersionFunction = int (*)();

}  // namespace stowage::executor
