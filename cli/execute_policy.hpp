#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/policy_input.hpp"

namespace stowage::cli {

/// What a command line says of the policy that is executed.
struct ExecutedPolicyOptions {
    std::optional<std::string> policy;  ///< megatron, stowage, none

    void add_to(CLI::App& verb);
};

/// A job, the policy that runs and its name.
struct ExecutedPolicy {
    types::Scenario scenario;
    types::OffloadChoice choice;
    std::string name;
};

/// Reads a scenario or a plan. Without an option: Megatron's policy where something is offloaded, else none.
/// Throws: types::InputError for a file that is wrong or whose layers are not those that run here; CommandLineError;
/// types::Error, exit code 4, for a policy that Megatron refuses.
ExecutedPolicy read_executed_policy(const CommonOptions& common, const std::string& input,
                                    const ExecutedPolicyOptions& options);

}  // namespace stowage::cli
