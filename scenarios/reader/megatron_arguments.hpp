#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/diagnostics.hpp"
#include "scenarios/reader/source_map.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

/// What arguments do not say: the machines they are for.
struct ImportedHardware {
    std::filesystem::path node;              ///< hardware file (schema stowage/hardware/1)
    std::optional<std::int64_t> nodes;       ///< machines
    std::optional<std::int64_t> world_size;  ///< GPUs of the job; a part of one machine is fine
    [[nodiscard]] bool sized() const { return nodes || world_size; }
};

/// Something that Megatron does about its arguments before there is a configuration, and that a scenario therefore
/// cannot show: it rejects them, or changes one of them.
struct ArgumentFinding {
    std::string rule;  ///< the planner's name for it
    bool illegal = false;
    std::string message;
    std::string nearest_legal;
    Location at;
};

/// A scenario made from another program's file.
struct ImportedScenario {
    types::Scenario scenario;
    SourceMap where;                 ///< keys of the scenario -> the arguments they came from
    std::vector<std::string> notes;  ///< what was not taken over, one sentence each with file:line:column
    std::vector<ArgumentFinding> findings;
    /// Rules that the scenario seems to break because it cannot say how the arguments keep them.
    std::vector<std::string> kept_rules;
    std::vector<std::string> missing;  ///< when comparing: what the scenario language cannot say, in its words
    bool part_of_a_node = false;       ///< the job has fewer GPUs than a machine of the hardware file
};

/// What the scenario is wanted for.
enum class ImportFor : std::uint8_t {
    planning,   ///< it must say everything that changes memory or time: what it cannot say is an error
    judging,    ///< what it cannot say is judged by its findings and becomes a note
    comparing,  ///< what it cannot say is listed by name
};

/// Reads Megatron-LM's training arguments and fills in what Megatron derives from them.
/// The file: a flat YAML map of arguments, with or without leading dashes, words joined by dashes or underscores, and
/// an optional map `env` (the maps MODEL_ARGS and ENV_VARS of Megatron's own test cases are taken too). A flag is true,
/// an empty text or nothing; a list is `[a b]`, `a b` or a YAML list; null is as if the argument were not there.
/// Arguments without effect on memory and time are passed over; those whose effect is not planned, and those nobody
/// knows, become notes; those that change what a layer is and that the scenario language lacks are errors, by name.
/// Throws: types::InputError with every error found, each as file:line:column, argument, line, caret and hint.
/// Source: Megatron-LM, megatron/training/arguments.py (validate_args) and core/transformer/transformer_config.py,
/// main of August 2026.
ImportedScenario import_megatron(const std::filesystem::path& arguments, const ImportedHardware& hardware,
                                 ImportFor purpose = ImportFor::planning);

}  // namespace stowage::reader
