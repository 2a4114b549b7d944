#include "cli/execution.hpp"

#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <utility>

#include "planner/memory/pinned_demand.hpp"
#include "planner/memory/planned_memory.hpp"
#include "reports/outcome_json.hpp"

namespace stowage::cli {
namespace {

executor::AllocatorKind allocator_of(const RunOptions& options, const std::string& policy) {
    if (options.allocator) return types::parse_name<executor::AllocatorKind>(*options.allocator).value();
    if (options.debug.fences) return executor::AllocatorKind::caching;
    return policy == "stowage" ? executor::AllocatorKind::planned : executor::AllocatorKind::caching;
}

std::int64_t rank_of(const RunOptions& options, const search::Outcome& outcome) {
    if (!options.rank) return outcome.fullest_rank().pipeline_rank;
    const std::int64_t ranks = std::ssize(outcome.ranks);
    if (*options.rank >= ranks)
        throw CommandLineError(
            fmt::format("--rank: found {}, expected a pipeline rank from 0 to {}", *options.rank, ranks - 1));
    return *options.rank;
}

executor::ExecutionRequest request_of(const RunOptions& options, const search::Job& job, const ExecutedPolicy& policy,
                                      std::int64_t rank) {
    executor::ExecutionRequest request;
    request.scenario = policy.scenario;
    request.choice = policy.choice;
    request.pipeline_rank = rank;
    request.policy = policy.name;
    request.allocator = allocator_of(options, policy.name);
    request.caching_config = job.allocator;
    request.steps = options.steps;
    request.warmup_steps = options.warmup_steps;
    request.warmup_seconds = options.warmup_seconds;
    request.launch_steps = options.launch_steps;
    request.seed = options.seed;
    request.routing_skew = options.routing_skew;
    request.digest_every_step = options.digest_every_step;
    request.profile = options.profile;
    request.gemm_table = options.gemm_table;
    request.debug = options.debug;
    if (options.stand_ins)
        request.stand_ins = std::make_shared<layers::StageLayers>(job.stages.at(static_cast<std::size_t>(rank)));
    return request;
}

}  // namespace

PreparedExecution prepare_execution(const CommonOptions& common, ExecutedPolicy policy,
                                    const ExecutedPolicyOptions& policy_options, const RunOptions& options) {
    PreparedExecution prepared;
    prepared.job = search::prepare(policy.scenario);
    prepared.policy = std::move(policy);
    if (options.stand_ins) use_stand_ins(prepared.job, *options.stand_ins);
    choose_groups(common, prepared.job, policy_options, prepared.policy);
    prepared.outcome = search::evaluate(prepared.job, prepared.policy.choice);
    if (!prepared.outcome.runs()) throw types::Error(types::ExitCode::no, reports::stop_reason(prepared.outcome));
    prepared.request = request_of(options, prepared.job, prepared.policy, rank_of(options, prepared.outcome));
    return prepared;
}

program::StepProgram program_of(const search::Job& job, const executor::ExecutionRequest& request) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    return program::lower(job.stages.at(static_cast<std::size_t>(request.pipeline_rank)), job.scenario.microbatches(),
                          request.choice, job.scenario.rules, durations)
        .program;
}

reports::PredictedRank predict(const search::Outcome& outcome, const executor::ExecutionRequest& request,
                               const program::StepProgram& program) {
    const search::RankOutcome& rank = outcome.ranks.at(static_cast<std::size_t>(request.pipeline_rank));
    if (request.allocator == executor::AllocatorKind::caching) return reports::predicted_rank(rank, nullptr);
    const memory::PlannedMemory planned = memory::plan_memory(program);
    reports::PredictedRank predicted = reports::predicted_rank(rank, &planned);
    predicted.pinned = memory::pinned_arena_size(program, false);  // no first iteration is run
    return predicted;
}

std::vector<std::string> debug_modes(const executor::DebugModes& debug) {
    std::vector<std::string> modes;
    if (debug.spin_seed) modes.push_back(fmt::format("spin {}", *debug.spin_seed));
    if (debug.poison) modes.emplace_back("poison");
    if (debug.fences) modes.emplace_back("fences");
    return modes;
}

}  // namespace stowage::cli
