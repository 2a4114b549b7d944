#pragma once

#include <string>

namespace stowage::cli {

/// What a run of the built command gave.
struct CommandResult {
    int code = 0;
    std::string out;
    std::string error;
};

/// Runs `stowage ARGUMENTS` through the shell, in the root of the source tree so that messages name files as given.
CommandResult stowage(const std::string& arguments);

/// A file of tests/data.
inline const std::string kSmall = "tests/data/small.yaml";

}  // namespace stowage::cli
