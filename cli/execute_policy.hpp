#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/policy_input.hpp"
#include "planner/search/job.hpp"

namespace stowage::cli {

/// What a command line says of the policy that is executed.
struct ExecutedPolicyOptions {
    std::optional<std::string> policy;         ///< megatron, stowage, none
    std::optional<std::string> offload_bytes;  ///< of policy stowage, as the following
    std::optional<std::int64_t> reload_ahead;
    std::optional<std::int64_t> join_after;
    bool stand_ins = false;  ///< layers of any implementation, since they do not run themselves

    void add_to(CLI::App& verb);
};

/// A job, the policy that runs and its name.
struct ExecutedPolicy {
    types::Scenario scenario;
    types::OffloadChoice choice;
    std::string name;
};

/// Reads a scenario or a plan. Without an option: Megatron's policy where something is offloaded, else none; a plan of
/// policy stowage keeps it. Which groups policy stowage moves is left to choose_groups.
/// Throws: types::InputError for a file that is wrong or whose layers are not those that run here; CommandLineError;
/// types::Error, exit code 4, for a policy that Megatron refuses.
ExecutedPolicy read_executed_policy(const CommonOptions& common, const std::string& input,
                                    const ExecutedPolicyOptions& options);

/// The same of a scenario that was read, and of a scenario with a choice.
ExecutedPolicy executed_policy(const CommonOptions& common, reader::LoadedScenario loaded,
                               const ExecutedPolicyOptions& options);
ExecutedPolicy executed_policy(PolicyInput read, const ExecutedPolicyOptions& options);

/// Policy stowage: what leaves on each pipeline rank. Groups of the scenario's modules, of all modules if it names
/// none, from the first layer on until the bytes of one microbatch that the options ask for are reached, else the
/// scenario's fraction. How far reloads run ahead and how soon copies are joined is found by simulation where the
/// options leave it open. A choice that names its groups is kept unless the options ask for bytes. Other policies are
/// left alone.
void choose_groups(const CommonOptions& common, const search::Job& job, const ExecutedPolicyOptions& options,
                   ExecutedPolicy& policy);

}  // namespace stowage::cli
