#pragma once

// A list of configurations that are predicted and measured, in a compact form: slices of models, and variants of what
// is done with each.
//
//     schema: stowage/validation/1
//     scenario: ../dense-8x4096.yaml
//     slices:
//       - {name: 4x2048, model: {num_layers: 4, hidden_size: 2048}}
//       - {name: 2x8192, model: {num_layers: 2, hidden_size: 8192}, variants: [nothing]}
//     variants:
//       - {name: nothing, policy: none}
//       - {name: half, policy: megatron, offload: {offload_modules: [core_attn, attn_proj],
//       activation_offload_fraction: 0.5}}
//
// gives 4x2048/nothing, 4x2048/half and 2x8192/nothing. A slice and a variant may override any key of the scenario, in
// its groups and with its names, the variant last.
//
// Tested by: tests/scenarios/reader/validation_file_test.cpp.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::reader {

/// How a configuration is run; what is absent is left to the verb's defaults.
struct RunSettings {
    std::optional<std::string> policy;          ///< none, megatron, stowage
    std::optional<std::string> allocator;       ///< caching, planned
    std::optional<std::int64_t> rank;           ///< pipeline rank
    std::optional<types::Bytes> offload_bytes;  ///< of policy stowage: of one microbatch, as the next two
    std::optional<std::int64_t> reload_ahead;
    std::optional<std::int64_t> join_after;
    std::optional<std::int64_t> steps;
    std::optional<double> warmup_seconds;
    std::optional<std::int64_t> seed;
    std::optional<double> routing_skew;
};

struct ValidationCase {
    std::string name;  ///< slice/variant, or the one of the two that there is
    LoadedScenario loaded;
    RunSettings run;
};

struct ValidationFile {
    std::vector<ValidationCase> cases;  ///< slice by slice, in the file's order
    std::vector<std::string> bars;      ///< as the option --bar takes them
};

/// Whether the file says that it is one of these; false if it cannot be read.
bool is_validation_file(const std::filesystem::path& path);

/// Throws: types::InputError with every error of the file and of the scenario it starts from, each as file:line:column;
/// what is wrong only in a combination stands under the name of the first one that has it. Cost: milliseconds a case.
ValidationFile read_validation_file(const std::filesystem::path& path);

}  // namespace stowage::reader
