#pragma once

// So that a command never asks something of a library that was built for another one.

#include <cstddef>

#include "cli/gpu/gpu_verbs.hpp"

namespace stowage::cli {

/// Of the types that cross the border: a member more or less changes it, so that halves of two builds do not meet.
constexpr int layout_of_verbs() {
    std::size_t mixed = 0;
    for (const std::size_t size :
         {sizeof(executor::ExecutionRequest), sizeof(executor::ExecutionResult), sizeof(types::Node),
          sizeof(recording::Profile), sizeof(program::TimelineEntry), sizeof(profiler::RawStep),
          sizeof(calibrate::Measurements), sizeof(calibrate::CampaignOptions)})
        mixed = (mixed * 1009 + size) % 1'000'000;
    return static_cast<int>(mixed);
}

/// Of what gpu_verbs.hpp says: its millions are counted up when anything in it, or in the headers it includes, changes
/// and leaves the sizes alone.
inline constexpr int kGpuVerbsVersion = 1'000'000 + layout_of_verbs();

/// The library exports by this name which one it was built with: `extern "C" int stowage_gpu_version()`.
inline constexpr const char* kGpuVersionSymbol = "stowage_gpu_version";
using GpuVersionFunction = int (*)();

}  // namespace stowage::cli
