#pragma once

// What `execute` and `validate --run` share: from a policy and the options of a run to the request that the GPU library
// gets, and to the prediction that is set beside what it measures.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/execute_policy.hpp"
#include "cli/stand_ins.hpp"
#include "executor/engine/execution.hpp"
#include "planner/program/step_program.hpp"
#include "planner/search/job.hpp"
#include "reports/measurement_json.hpp"

namespace stowage::cli {

/// How a configuration is run, whatever its policy.
struct RunOptions {
    std::optional<std::int64_t> rank;      ///< default: the one with the highest predicted peak
    std::optional<std::string> allocator;  ///< default: planned with policy stowage, else caching
    std::int64_t steps = 20;
    std::int64_t warmup_steps = 5;
    double warmup_seconds = 0;
    std::int64_t launch_steps = 5;
    std::uint64_t seed = 1;
    std::optional<double> routing_skew;
    bool digest_every_step = false;
    bool profile = true;
    std::optional<std::string> gemm_table;
    std::optional<StandInOptions> stand_ins;  ///< in place of layers that run here
    executor::DebugModes debug;
};

/// A configuration, ready to be run.
struct PreparedExecution {
    search::Job job;
    search::Outcome outcome;  ///< of the whole pipeline
    ExecutedPolicy policy;    ///< with its groups chosen
    executor::ExecutionRequest request;
};

/// Chooses what leaves, where that is open, and the rank.
/// Throws: types::Error, exit code 4, for a policy that stops; CommandLineError for a rank that there is not.
PreparedExecution prepare_execution(const CommonOptions& common, ExecutedPolicy policy,
                                    const ExecutedPolicyOptions& policy_options, const RunOptions& options);

/// The program as the library lowers it: its timeline is told by the same ids.
program::StepProgram program_of(const search::Job& job, const executor::ExecutionRequest& request);

/// Of a rank of the whole pipeline, and of its fixed addresses where the request has them.
reports::PredictedRank predict(const search::Outcome& outcome, const executor::ExecutionRequest& request,
                               const program::StepProgram& program);

/// In words, as measurements hold them.
std::vector<std::string> debug_modes(const executor::DebugModes& debug);

}  // namespace stowage::cli
