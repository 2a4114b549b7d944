#pragma once

#include <string>

#include "scenarios/reader/megatron_arguments.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::reader::testing {

/// What every job must say; 32 GPUs unless a test says otherwise.
inline const std::string kSmallJob =
    "num-layers: 12\n"
    "hidden-size: 512\n"
    "num-attention-heads: 8\n"
    "seq-length: 1024\n"
    "max-position-embeddings: 1024\n";

std::string shipped_h100();

/// Imports the text as a file args.yaml of a folder of its own.
ImportedScenario import_text(const std::string& text, std::int64_t world_size = 8);

/// The same after kSmallJob.
inline types::Scenario import_small(const std::string& more, std::int64_t world_size = 8) {
    return import_text(kSmallJob + more, world_size).scenario;
}

/// The message of the error that importing kSmallJob and `more` ends in, without the folder; empty if it does not.
std::string error_of(const std::string& more, std::int64_t world_size = 8);

/// All notes, one a line, without the folder.
std::string notes_of(const std::string& more);

}  // namespace stowage::reader::testing
