#include "cli/profile_scenario.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "cli/execute_policy.hpp"
#include "cli/gpu_library.hpp"
#include "cli/inputs.hpp"
#include "planner/rules/legality.hpp"
#include "planner/search/candidates.hpp"
#include "profiler/record/make_recording.hpp"
#include "reports/document.hpp"
#include "reports/outcome_json.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 1'000'000;
constexpr std::int64_t kMostTimedSteps = 10'000;
constexpr std::int64_t kMostRecorded = 20;

/// All runs of one profile take the same algorithms of matrix products: from the user's table, else from one that goes
/// when the profile is made.
class GemmTable {
public:
    explicit GemmTable(const std::optional<std::string>& given) : path_(given.value_or("")), own_(!given) {
        if (own_) path_ = (fs::temp_directory_path() / fmt::format("stowage-gemm-{}.json", ::getpid())).string();
    }
    GemmTable(const GemmTable&) = delete;
    GemmTable& operator=(const GemmTable&) = delete;
    GemmTable(GemmTable&&) = delete;
    GemmTable& operator=(GemmTable&&) = delete;
    ~GemmTable() {
        std::error_code ignored;
        if (own_) fs::remove(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    bool own_;
};

std::string text_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file) throw types::InputError(path + ": error: reading it failed");
    return text.str();
}

types::Scenario without_graphs(types::Scenario scenario) {
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::none;
    scenario.cuda_graph.cuda_graph_modules.clear();
    return scenario;
}

bool has_graphs(const types::Scenario& scenario) {
    return scenario.cuda_graph.cuda_graph_impl != types::CudaGraphImpl::none;
}

std::int64_t rank_of(const ScenarioProfile& options, const search::Job& job, const types::OffloadChoice& choice) {
    const std::int64_t ranks = std::ssize(job.stages);
    if (options.rank && *options.rank >= ranks)
        throw CommandLineError(
            fmt::format("--rank: found {}, expected a pipeline rank from 0 to {}", *options.rank, ranks - 1));
    if (options.rank) return *options.rank;
    const search::Outcome outcome = search::evaluate(job, choice);
    if (!outcome.runs()) throw types::Error(types::ExitCode::no, reports::stop_reason(outcome));
    return outcome.fullest_rank().pipeline_rank;
}

/// The most modules that may be offloaded at once, with everything that they save.
types::OffloadChoice everything(const search::Job& job) {
    types::OffloadChoice choice = search::make_choice(job, {}, 1);
    choice.min_offloaded_tensor_size = 0;
    choice.delta_bytes_across_pp_ranks = 0;
    choice.max_inflight_offloads.reset();
    choice.delay_until_cuda_graph = false;
    for (const types::ModuleSet& modules : rules::legal_subsets(job.scenario, search::modules_with_sites(job, 0)))
        if (modules.size() > choice.modules.size()) choice.modules = modules;
    return choice;
}

/// What the runs of one profile have in common: nothing leaves, and steps are recorded instead of measured.
executor::ExecutionRequest common_request(const ScenarioProfile& options, const search::Job& job, std::int64_t rank,
                                          const GemmTable& table) {
    executor::ExecutionRequest request;
    request.scenario = job.scenario;
    request.choice = search::make_choice(job, {}, 1);
    request.pipeline_rank = rank;
    request.policy = "none";
    request.caching_config = job.allocator;
    request.steps = options.steps;
    request.warmup_steps = options.warmup;
    request.warmup_seconds = parse_seconds("--warmup-seconds", options.warmup_seconds);
    request.profile = false;
    request.gemm_table = table.path();
    request.record = executor::RecordedSteps{.first = false, .steady = options.recorded};
    return request;
}

recording::Recording header_of(const ScenarioProfile& options, const executor::ExecutionRequest& request,
                               const recording::Measurement& measured) {
    recording::Recording header;
    header.source = "stowage";
    header.implementation = measured.implementation;
    header.scenario_name = measured.scenario;
    header.scenario_text = text_of_file(options.input);
    header.pipeline_rank = request.pipeline_rank;
    header.machine = measured.machine;
    header.samples = measured.samples;
    header.step_times = measured.event_times;
    return header;
}

class Profile {
public:
    Profile(const CommonOptions& common, const ScenarioProfile& options, types::Scenario scenario)
        : common_(common),
          options_(options),
          scenario_(std::move(scenario)),
          job_(search::prepare(without_graphs(scenario_))),
          gpu_(open_gpu_verbs("profile")),
          table_(options.gemm_table) {}

    recording::Recording run() {
        const std::int64_t rank = rank_of(options_, job_, search::make_choice(job_, {}, 1));
        const executor::ExecutionRequest eager = common_request(options_, job_, rank, table_);
        // First, since CUPTI 13.0 may mistake launches of graphs in a session after the first one of a process.
        if (has_graphs(scenario_)) run(with_graphs(eager));
        std::vector<profiler::RawStep> graphed = std::exchange(steps_, {});
        recording::Recording header = header_of(options_, eager, run(eager));
        std::move(graphed.begin(), graphed.end(), std::back_inserter(steps_));
        if (!options_.no_groups) run(first_iteration(eager));
        return profiler::make_recording(steps_, std::move(header));
    }

private:
    recording::Measurement run(const executor::ExecutionRequest& request) {
        executor::ExecutionResult result = gpu_.execute(request, [&](const std::string& line) { say(common_, line); });
        for (profiler::RawStep& step : result.recorded_steps) steps_.push_back(std::move(step));
        return std::move(result.measurement);
    }

    [[nodiscard]] executor::ExecutionRequest with_graphs(executor::ExecutionRequest request) const {
        request.scenario = scenario_;
        request.steps = 0;
        request.record->steady = 1;
        return request;
    }

    [[nodiscard]] executor::ExecutionRequest first_iteration(executor::ExecutionRequest request) const {
        request.policy = "megatron";
        request.choice = everything(job_);
        request.record = executor::RecordedSteps{.first = true, .steady = 0};
        return request;
    }

    const CommonOptions& common_;
    const ScenarioProfile& options_;
    types::Scenario scenario_;
    search::Job job_;
    GpuVerbs& gpu_;
    GemmTable table_;
    std::vector<profiler::RawStep> steps_;
};

}  // namespace

void ScenarioProfile::add_to(CLI::App& verb) {
    verb.add_option("--rank", rank, "pipeline rank to run; default: the one with the highest predicted peak")
        ->check(CLI::Range(std::int64_t{0}, kMostRanks))
        ->type_name("R");
    verb.add_option("--steps", steps, "steps to time without recording them (10)")
        ->check(CLI::Range(std::int64_t{1}, kMostTimedSteps));
    verb.add_option("--warmup", warmup, "steps before them, at least (3)")
        ->check(CLI::Range(std::int64_t{0}, kMostTimedSteps));
    verb.add_option("--warmup-seconds", warmup_seconds, "at least so long, for clocks and power to settle (3)")
        ->type_name("SECONDS");
    verb.add_option("--recorded-steps", recorded, "eager steps to record (3)")
        ->check(CLI::Range(std::int64_t{1}, kMostRecorded));
    verb.add_option("--gemm-table", gemm_table,
                    "algorithms of matrix products: read if the file is there, else measured and written")
        ->type_name("FILE");
    verb.add_flag("--no-groups", no_groups,
                  "without the iteration in which everything leaves the device, which tells the tensor groups");
}

types::Scenario read_profiled_scenario(const CommonOptions& common, const ScenarioProfile& profile) {
    static_cast<void>(parse_seconds("--warmup-seconds", profile.warmup_seconds));  // before anything takes time
    if (reports::looks_like_json(profile.input))
        throw types::InputError(profile.input + ": error: is JSON, expected a scenario (YAML)");
    ExecutedPolicyOptions none;
    none.policy = "none";
    return read_executed_policy(common, profile.input, none).scenario;
}

recording::Recording profile_scenario(const CommonOptions& common, const ScenarioProfile& profile,
                                      types::Scenario scenario) {
    return Profile(common, profile, std::move(scenario)).run();
}

}  // namespace stowage::cli
