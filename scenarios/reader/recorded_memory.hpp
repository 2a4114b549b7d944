#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/document.hpp"
#include "scenarios/reader/megatron_arguments.hpp"

namespace stowage::reader {

/// One run of a Megatron-LM job and the device memory that its logging rank, the last of the job, reported.
struct RecordedRun {
    std::string name;
    std::string gpu;        ///< the type, in lower case: a100, h100, gb200
    std::int64_t gpus = 0;  ///< world size
    /// Largest over the logged iterations, in bytes; absent where it was not recorded.
    std::optional<std::int64_t> allocated;       ///< between steps
    std::optional<std::int64_t> peak_allocated;  ///< highest since the start
    std::shared_ptr<const Value> arguments;      ///< a mapping with `args` and `env`
    SourcePointer source;
};

/// Reads a table of recorded memory: a list of mappings with `name`, `args`, `env` and `recorded`; `recorded` maps GPU
/// types to `gpus`, `mem_allocated_bytes` and `mem_max_allocated_bytes`, the last two with their `max`.
/// Result: a run for each GPU type of each entry, in the file's order.
/// Throws: types::InputError with every error found, each as file:line:column, path, line, caret and hint.
std::vector<RecordedRun> read_recorded_memory(const std::filesystem::path& table);

/// The job of a run on machines of `hardware`, from its arguments, environment and world size alone. What a scenario
/// cannot say is named in `missing`. Throws: types::InputError for arguments that cannot be read.
ImportedScenario import_recorded(const RecordedRun& run, const std::filesystem::path& hardware);

}  // namespace stowage::reader
