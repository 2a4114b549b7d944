#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>

#include "cli/execution.hpp"
#include "cli/gpu_library.hpp"
#include "cli/inputs.hpp"
#include "cli/outputs.hpp"
#include "cli/verb.hpp"
#include "reports/measurement_json.hpp"
#include "reports/measurement_text.hpp"
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
    RunOptions run;
    std::optional<std::string> recording;
    std::optional<std::string> warmup_seconds;
    bool no_profile = false;
    std::optional<std::string> out;
    std::optional<std::string> trace;
};

void refuse_combinations(const ExecuteOptions& options) {
    if (options.no_profile && options.trace)
        throw CommandLineError("--trace shows the profiled step, which --no-profile leaves out");
    if (options.recording && !options.policy.stand_ins)
        throw CommandLineError("--recording gives stand-ins their times: add --stand-ins");
    if (options.policy.stand_ins && options.run.routing_skew)
        throw CommandLineError("--routing-skew sends tokens to experts, and stand-ins have neither");
    if (options.policy.stand_ins && options.run.debug.dump)
        throw CommandLineError("--dump writes parameters, tokens and losses, and stand-ins have none");
    if (options.run.debug.fences && options.run.allocator == "planned")
        throw CommandLineError("--fences needs --allocator caching");
}

/// What is written besides the outputs, as far as that shows before hours have gone into it.
void check_places(const ExecuteOptions& options) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (options.run.debug.dump) {
        if (options.run.debug.dump->empty()) throw CommandLineError("--dump: found no name, expected a folder");
        if (fs::exists(*options.run.debug.dump, ignored) && !fs::is_directory(*options.run.debug.dump, ignored))
            throw types::InputError(*options.run.debug.dump + ": error: is a file, expected a folder for --dump");
    }
    if (!options.run.gemm_table) return;
    refuse_to_replace(options.input, "--gemm-table", *options.run.gemm_table);
    if (options.out) refuse_to_replace(*options.run.gemm_table, "--out", *options.out);
    if (options.trace) refuse_to_replace(*options.run.gemm_table, "--trace", *options.trace);
    const fs::path folder = fs::path(*options.run.gemm_table).parent_path();
    if (!folder.empty() && !fs::is_directory(folder, ignored))
        throw types::InputError(
            fmt::format("{}: error: cannot be written\nhint: there is no folder '{}'; make it first",
                        *options.run.gemm_table, folder.string()));
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

void write_trace(Outputs& outputs, const search::Outcome& outcome, program::StepProgram program,
                 program::StageTimeline timeline) {
    for (const program::TimelineEntry& entry : timeline.entries)
        STOWAGE_CHECK(program::operation_of(program, entry) != nullptr,
                      "the measured timeline is of the lowered program");
    search::TracedOutcome traced;
    traced.outcome = outcome;
    traced.programs.push_back(std::move(program));
    traced.timelines.push_back(std::move(timeline));
    outputs.write_trace(traced, "the profiled step");
}

RunOptions run_options(const ExecuteOptions& options) {
    RunOptions run = options.run;
    run.profile = !options.no_profile;
    if (options.policy.stand_ins) run.stand_ins = StandInOptions{options.recording, options.input};
    if (options.warmup_seconds) run.warmup_seconds = parse_seconds("--warmup-seconds", *options.warmup_seconds);
    return run;
}

types::ExitCode run_execute(const ExecuteOptions& options) {
    refuse_combinations(options);
    check_places(options);
    ExecutedPolicy policy = read_executed_policy(options.common, options.input, options.policy);
    Outputs outputs(options.common, options.input, options.out, options.trace);
    GpuVerbs& gpu = open_gpu_verbs("execute");
    const PreparedExecution prepared =
        prepare_execution(options.common, std::move(policy), options.policy, run_options(options));
    const executor::ExecutionRequest& request = prepared.request;
    program::StepProgram program = program_of(prepared.job, request);
    const reports::PredictedRank predicted = predict(prepared.outcome, request, program);

    executor::ExecutionResult result =
        gpu.execute(request, [&](const std::string& line) { say(options.common, line); });
    const reports::Json document =
        reports::measurement_json({std::move(result.measurement), prepared.policy.scenario, prepared.policy.choice,
                                   debug_modes(request.debug), predicted});
    outputs.write_document(document);
    if (options.trace) write_trace(outputs, prepared.outcome, std::move(program), std::move(result.timeline));
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(reports::measurement_text(document));
    return types::ExitCode::yes;
}

void add_run_options(CLI::App& verb, ExecuteOptions& options) {
    verb.add_option("--rank", options.run.rank,
                    "pipeline rank to run; default: the one with the highest predicted peak")
        ->check(CLI::Range(std::int64_t{0}, kMostRanks))
        ->type_name("R");
    verb.add_option("--allocator", options.run.allocator,
                    "caching: as PyTorch's; planned: addresses fixed before the step (default with policy stowage)")
        ->check(CLI::IsMember({"caching", "planned"}))
        ->type_name("KIND");
    verb.add_option("--steps", options.run.steps, "steps to time (20)")->check(CLI::Range(std::int64_t{1}, kMostSteps));
    verb.add_option("--warmup", options.run.warmup_steps, "steps before them (5)")
        ->check(CLI::Range(std::int64_t{0}, kMostSteps));
    verb.add_option("--warmup-seconds", options.warmup_seconds, "at least so long, for clocks and power to settle")
        ->type_name("SECONDS");
    verb.add_option("--seed", options.run.seed, "of parameters and tokens (1)")
        ->check(CLI::Validator(why_no_seed, ""))
        ->type_name("N");
    verb.add_option("--routing-skew", options.run.routing_skew,
                    "send this rank's experts so many times the mean, whatever is planned for")
        ->check(CLI::Range(1.0, kMostSkew))
        ->type_name("X");
    verb.add_option("--gemm-table", options.run.gemm_table,
                    "algorithms of matrix products: read if the file is there, else measured and written")
        ->type_name("FILE");
    verb.add_flag("--no-profile", options.no_profile, "without the step that CUPTI records");
}

void add_fault_options(CLI::App& verb, ExecuteOptions& options) {
    verb.add_flag("--verify", options.run.digest_every_step,
                  "digests of the losses and gradients of every step; nothing is timed");
    verb.add_option("--spin", options.run.debug.spin_seed, "delay copies and events at random; slow, not timed")
        ->check(CLI::Validator(why_no_seed, ""))
        ->type_name("SEED");
    verb.add_flag("--poison", options.run.debug.poison,
                  "fill memory with NaN when it is taken and freed; slow, not timed");
    verb.add_flag("--fences", options.run.debug.fences, "watch for bytes written outside of buffers; slow, not timed");
    verb.add_option("--dump", options.run.debug.dump,
                    "write parameters, tokens, losses and gradients of the first step")
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
    verb->add_flag("--stand-ins", options->policy.stand_ins,
                   "run work of the same class, length and traffic in place of layers, of any implementation");
    verb->add_option("--recording", options->recording,
                     "with --stand-ins: as long as 'stowage profile' recorded; others are estimated")
        ->type_name("FILE");
    add_run_options(*verb, *options);
    add_fault_options(*verb, *options);
    verb->add_option("--out", options->out, "write the measurement here (JSON)")->type_name("FILE");
    verb->add_option("--trace", options->trace, "write the profiled step here, for ui.perfetto.dev")->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_execute(*options); }; });
}

}  // namespace stowage::cli
