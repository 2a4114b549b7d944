#pragma once

#include <string>

#include "cli/verb.hpp"

namespace stowage::cli {

/// What is asked of `validate --megatron-memory`.
struct MemoryTableOptions {
    std::string table;
    std::string job;  ///< only jobs with this in their names
    std::string gpu;  ///< only runs on this type
};

/// Predictions beside the memory that Megatron-LM's jobs recorded.
types::ExitCode validate_memory_table(const CommonOptions& common, const MemoryTableOptions& options);

}  // namespace stowage::cli
