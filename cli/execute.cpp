#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "cli/execute_policy.hpp"
#include "cli/gpu_library.hpp"
#include "cli/inputs.hpp"
#include "cli/outputs.hpp"
#include "cli/verb.hpp"
#include "planner/memory/planned_memory.hpp"
#include "reports/measurement_json.hpp"
#include "reports/measurement_text.hpp"
#include "reports/outcome_json.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::cli {
namespace {

constexpr std::int64_t kMostSteps = 1'000'000;
constexpr std::int64_t kMostRanks = 1'000'000;
constexpr double kMostSkew = 1000;

struct ExecuteOptions {
    CommonOptions common;
    std::string input;
    ExecutedPolicyOptions policy;
    std::optional<std::int64_t> rank;
    std::optional<std::string> allocator;
    std::int64_t steps = 20;
    std::int64_t warmup = 5;
    std::optional<std::string> warmup_seconds;
    std::uint64_t seed = 1;
    std::optional<double> routing_skew;
    std::optional<std::string> gemm_table;
    bool verify = false;
    bool no_profile = false;
    executor::DebugModes debug;
    std::optional<std::string> out;
    std::optional<std::string> trace;
};

void refuse_combinations(const ExecuteOptions& options) {
    if (options.no_profile && options.trace)
        throw CommandLineError("--trace shows the profiled step, which --no-profile leaves out");
    if (options.debug.fences && options.allocator == "planned")
        throw CommandLineError("--fences needs --allocator caching");
}

/// What is written besides the outputs, as far as that shows before hours have gone into it.
void check_places(const ExecuteOptions& options) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (options.debug.dump) {
        if (options.debug.dump->empty()) throw CommandLineError("--dump: found no name, expected a folder");
        if (fs::exists(*options.debug.dump, ignored) && !fs::is_directory(*options.debug.dump, ignored))
            throw types::InputError(*options.debug.dump + ": error: is a file, expected a folder for --dump");
    }
    if (!options.gemm_table) return;
    refuse_to_replace(options.input, "--gemm-table", *options.gemm_table);
    if (options.out) refuse_to_replace(*options.gemm_table, "--out", *options.out);
    if (options.trace) refuse_to_replace(*options.gemm_table, "--trace", *options.trace);
    const fs::path folder = fs::path(*options.gemm_table).parent_path();
    if (!folder.empty() && !fs::is_directory(folder, ignored))
        throw types::InputError(
            fmt::format("{}: error: cannot be written\nhint: there is no folder '{}'; make it first",
                        *options.gemm_table, folder.string()));
}

/// Of a seed. CLI11 reads whatever is too large as the largest.
std::string why_no_seed(const std::string& text) {
    std::uint64_t seed = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, seed);
    if (read.ec == std::errc{} && read.ptr == end) return "";
    return fmt::format("found '{}', expected a whole number from 0 to {}", text,
                       std::numeric_limits<std::uint64_t>::max());
}

executor::AllocatorKind allocator_of(const ExecuteOptions& options, const std::string& policy) {
    if (options.allocator) return types::parse_name<executor::AllocatorKind>(*options.allocator).value();
    if (options.debug.fences) return executor::AllocatorKind::caching;
    return policy == "stowage" ? executor::AllocatorKind::planned : executor::AllocatorKind::caching;
}

std::int64_t rank_of(const ExecuteOptions& options, const search::Outcome& outcome) {
    if (!options.rank) return outcome.fullest_rank().pipeline_rank;
    const std::int64_t ranks = std::ssize(outcome.ranks);
    if (*options.rank >= ranks)
        throw CommandLineError(
            fmt::format("--rank: found {}, expected a pipeline rank from 0 to {}", *options.rank, ranks - 1));
    return *options.rank;
}

std::vector<std::string> debug_modes(const executor::DebugModes& debug) {
    std::vector<std::string> modes;
    if (debug.spin_seed) modes.push_back(fmt::format("spin {}", *debug.spin_seed));
    if (debug.poison) modes.emplace_back("poison");
    if (debug.fences) modes.emplace_back("fences");
    return modes;
}

executor::ExecutionRequest request_of(const ExecuteOptions& options, const search::Job& job,
                                      const ExecutedPolicy& policy, std::int64_t rank) {
    executor::ExecutionRequest request;
    request.scenario = policy.scenario;
    request.choice = policy.choice;
    request.pipeline_rank = rank;
    request.policy = policy.name;
    request.allocator = allocator_of(options, policy.name);
    request.caching_config = job.allocator;
    request.steps = options.steps;
    request.warmup_steps = options.warmup;
    if (options.warmup_seconds) request.warmup_seconds = parse_seconds("--warmup-seconds", *options.warmup_seconds);
    request.seed = options.seed;
    request.routing_skew = options.routing_skew;
    request.digest_every_step = options.verify;
    request.profile = !options.no_profile;
    request.gemm_table = options.gemm_table;
    request.debug = options.debug;
    return request;
}

/// The program as the library lowers it: its timeline is told by the same ids.
program::StepProgram program_of(const search::Job& job, const executor::ExecutionRequest& request) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    return program::lower(job.stages.at(static_cast<std::size_t>(request.pipeline_rank)), job.scenario.microbatches(),
                          request.choice, job.scenario.rules, durations)
        .program;
}

bool names_an_operation(const program::StepProgram& program, const program::TimelineEntry& entry) {
    const auto& steady = program.instances(program::RunStage::steady);
    const auto& issued = entry.in_graph() ? program.instances(program::RunStage::capture) : steady;
    const std::size_t number = entry.in_graph() ? entry.captured : entry.instance;
    return entry.instance < steady.size() && number < issued.size() &&
           entry.operation < program.bodies[program::index(issued[number].body)].operations.size();
}

reports::PredictedRank predict(const search::Outcome& outcome, const executor::ExecutionRequest& request,
                               const program::StepProgram& program) {
    const search::RankOutcome& rank = outcome.ranks.at(static_cast<std::size_t>(request.pipeline_rank));
    if (request.allocator == executor::AllocatorKind::caching) return reports::predicted_rank(rank, nullptr);
    const memory::PlannedMemory planned = memory::plan_memory(program);
    return reports::predicted_rank(rank, &planned);
}

void write_trace(Outputs& outputs, const search::Outcome& outcome, program::StepProgram program,
                 program::StageTimeline timeline) {
    for (const program::TimelineEntry& entry : timeline.entries)
        STOWAGE_CHECK(names_an_operation(program, entry), "the measured timeline is of the lowered program");
    search::TracedOutcome traced;
    traced.outcome = outcome;
    traced.programs.push_back(std::move(program));
    traced.timelines.push_back(std::move(timeline));
    outputs.write_trace(traced, "the profiled step");
}

types::ExitCode run_execute(const ExecuteOptions& options) {
    refuse_combinations(options);
    check_places(options);
    ExecutedPolicy policy = read_executed_policy(options.common, options.input, options.policy);
    Outputs outputs(options.common, options.input, options.out, options.trace);
    GpuVerbs& gpu = open_gpu_verbs("execute");
    const search::Job job = search::prepare(policy.scenario);
    choose_groups(options.common, job, options.policy, policy);
    const search::Outcome outcome = search::evaluate(job, policy.choice);
    if (!outcome.runs()) throw types::Error(types::ExitCode::no, reports::stop_reason(outcome));
    const executor::ExecutionRequest request = request_of(options, job, policy, rank_of(options, outcome));
    program::StepProgram program = program_of(job, request);
    const reports::PredictedRank predicted = predict(outcome, request, program);

    executor::ExecutionResult result =
        gpu.execute(request, [&](const std::string& line) { say(options.common, line); });
    const reports::Json document = reports::measurement_json(
        {std::move(result.measurement), policy.scenario, policy.choice, debug_modes(options.debug), predicted});
    outputs.write_document(document);
    if (options.trace) write_trace(outputs, outcome, std::move(program), std::move(result.timeline));
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(reports::measurement_text(document));
    return types::ExitCode::yes;
}

void add_run_options(CLI::App& verb, ExecuteOptions& options) {
    verb.add_option("--rank", options.rank, "pipeline rank to run; default: the one with the highest predicted peak")
        ->check(CLI::Range(std::int64_t{0}, kMostRanks))
        ->type_name("R");
    verb.add_option("--allocator", options.allocator,
                    "caching: as PyTorch's; planned: addresses fixed before the step (default with policy stowage)")
        ->check(CLI::IsMember({"caching", "planned"}))
        ->type_name("KIND");
    verb.add_option("--steps", options.steps, "steps to time (20)")->check(CLI::Range(std::int64_t{1}, kMostSteps));
    verb.add_option("--warmup", options.warmup, "steps before them (5)")
        ->check(CLI::Range(std::int64_t{0}, kMostSteps));
    verb.add_option("--warmup-seconds", options.warmup_seconds, "at least so long, for clocks and power to settle")
        ->type_name("SECONDS");
    verb.add_option("--seed", options.seed, "of parameters and tokens (1)")
        ->check(CLI::Validator(why_no_seed, ""))
        ->type_name("N");
    verb.add_option("--routing-skew", options.routing_skew,
                    "send this rank's experts so many times the mean, whatever is planned for")
        ->check(CLI::Range(1.0, kMostSkew))
        ->type_name("X");
    verb.add_option("--gemm-table", options.gemm_table,
                    "algorithms of matrix products: read if the file is there, else measured and written")
        ->type_name("FILE");
    verb.add_flag("--no-profile", options.no_profile, "without the step that CUPTI records");
}

void add_fault_options(CLI::App& verb, ExecuteOptions& options) {
    verb.add_flag("--verify", options.verify, "digests of the losses and gradients of every step; nothing is timed");
    verb.add_option("--spin", options.debug.spin_seed, "delay copies and events at random; slow, not timed")
        ->check(CLI::Validator(why_no_seed, ""))
        ->type_name("SEED");
    verb.add_flag("--poison", options.debug.poison, "fill memory with NaN when it is taken and freed; slow, not timed");
    verb.add_flag("--fences", options.debug.fences, "watch for bytes written outside of buffers; slow, not timed");
    verb.add_option("--dump", options.debug.dump, "write parameters, tokens, losses and gradients of the first step")
        ->type_name("FOLDER");
}

}  // namespace

void add_execute_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<ExecuteOptions>();
    CLI::App* const verb =
        add_verb(app, "execute", "Runs one rank's step on a GPU and measures it, beside its prediction.",
                 "stowage execute plan.json --policy none --out measurement.json --trace trace.json", options->common);
    verb->add_option("SCENARIO|PLAN", options->input, "scenario file (YAML) or plan (JSON)")->required();
    options->policy.add_to(*verb);
    add_run_options(*verb, *options);
    add_fault_options(*verb, *options);
    verb->add_option("--out", options->out, "write the measurement here (JSON)")->type_name("FILE");
    verb->add_option("--trace", options->trace, "write the profiled step here, for ui.perfetto.dev")->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_execute(*options); }; });
}

}  // namespace stowage::cli
