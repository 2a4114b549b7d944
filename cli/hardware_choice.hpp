#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/verb.hpp"
#include "scenarios/reader/megatron_arguments.hpp"

namespace stowage::cli {

/// Options of a verb that reads another program's file, which does not say what machines the job runs on.
struct HardwareOptions {
    std::optional<std::string> hardware;
    std::optional<std::int64_t> nodes;
    std::optional<std::int64_t> world_size;

    void add_to(CLI::App& verb);
    /// The machines, with the shipped H100 machine where none is named. `folder` is where the scenario is going to lie.
    /// Throws: CommandLineError if there is no file to take.
    [[nodiscard]] reader::ImportedHardware choose(const std::filesystem::path& folder) const;
};

/// The shipped machine with GPUs of a type such as h100; of several, the one that is a single machine.
std::optional<std::filesystem::path> shipped_machine(const std::string& gpu);

/// The shipped machine whose kind of GPU is a word of the device's name: "NVIDIA H200" and "h200".
std::optional<std::filesystem::path> shipped_machine_of_device(const std::string& device);

/// The path of `file` as a scenario in `folder` refers to it.
std::string as_seen_from(const std::filesystem::path& folder, const std::filesystem::path& file);

}  // namespace stowage::cli
