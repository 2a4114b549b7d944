#include "cli/validation_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "cli/gpu_library.hpp"
#include "reports/document.hpp"
#include "reports/measurement_json.hpp"
#include "reports/output_file.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double kWarmupSeconds = 1.25;  // until clocks and power are those of a chip at work
constexpr double kTimedSeconds = 1.5;
constexpr std::int64_t kFewestSteps = 3;
constexpr std::int64_t kMostSteps = 20;
constexpr std::int64_t kMostWarmupSteps = 2;
constexpr double kSetUpSeconds = 1.5;
constexpr double kFirstSeconds = 4;       // opening libraries, loading kernels
constexpr double kPinningSeconds = 0.75;  // a GiB; the old memory is given back too
constexpr double kFurtherSteps = 5;       // first iteration, eager, launches, digests, profile
constexpr double kPinnedRoom = 1.25;      // so that slightly larger ones need no new pinned memory

double seconds_of(types::Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A configuration's name as that of a file.
fs::path measurement_path(const std::string& folder, const ValidationItem& item) {
    std::string name = item.name;
    std::replace(name.begin(), name.end(), '/', '.');
    return fs::path(folder) / (name + "-" + item.request() + ".json");
}

/// Nothing if it is not there, or is not whole.
std::optional<MeasuredItem> read_measured(const ValidationItem& item, const ValidationRunOptions& options) {
    if (!options.out) return std::nullopt;
    const fs::path path = measurement_path(*options.out, item);
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) return std::nullopt;
    try {
        return MeasuredItem{item.name, path.string(), reports::read_document(path, reports::kMeasurementSchema)};
    } catch (const types::Error&) {
        return std::nullopt;
    }
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

ExecutedPolicyOptions policy_options(const reader::RunSettings& settings) {
    ExecutedPolicyOptions options;
    options.policy = settings.policy;
    if (settings.offload_bytes) options.offload_bytes = std::to_string(settings.offload_bytes->count);
    options.reload_ahead = settings.reload_ahead;
    options.join_after = settings.join_after;
    return options;
}

/// Steps are left to when their time is predicted.
RunOptions run_options(const reader::RunSettings& settings) {
    RunOptions options;
    options.rank = settings.rank;
    options.allocator = settings.allocator;
    options.warmup_seconds = settings.warmup_seconds.value_or(kWarmupSeconds);
    options.seed = static_cast<std::uint64_t>(settings.seed.value_or(1));
    options.routing_skew = settings.routing_skew;
    options.launch_steps = 1;
    return options;
}

/// Of one rank's slice alone.
double predicted_step(const PreparedExecution& prepared) {
    const auto slice = search::evaluate_slice(prepared.job, prepared.policy.choice, prepared.request.pipeline_rank);
    return slice ? seconds_of(slice->rank.step_time) : 0;
}

void choose_steps(const reader::RunSettings& settings, double step, executor::ExecutionRequest& request) {
    const double wanted = step > 0 ? std::ceil(kTimedSeconds / step) : static_cast<double>(kMostSteps);
    const auto fitting = static_cast<std::int64_t>(std::min(wanted, static_cast<double>(kMostSteps)));
    request.steps = settings.steps.value_or(std::max(fitting, kFewestSteps));
    request.warmup_steps = step > kWarmupSeconds ? 1 : kMostWarmupSteps;
}

/// What a configuration takes, learned from those before it.
class TimeBudget {
public:
    explicit TimeBudget(std::optional<double> limit) : limit_(limit) {}

    [[nodiscard]] double expected(const PreparedExecution& prepared, double step) const {
        const executor::ExecutionRequest& request = prepared.request;
        const auto& rank = prepared.outcome.ranks.at(static_cast<std::size_t>(request.pipeline_rank));
        const double pinned = types::in_gib(rank.pinned_arena);
        const double pinning = pinned > pinned_ ? kPinningSeconds * pinned * kPinnedRoom : 0;
        const double warming = std::max(request.warmup_seconds, static_cast<double>(request.warmup_steps) * step);
        const double steps = (static_cast<double>(request.steps + request.launch_steps) + kFurtherSteps) * step;
        return slower_ * (kSetUpSeconds + (expected_ > 0 ? 0 : kFirstSeconds) + pinning + warming + steps);
    }
    [[nodiscard]] bool fits(double seconds) const { return !limit_ || since(start_) + seconds <= *limit_; }
    void took(const PreparedExecution& prepared, double expected, double seconds) {
        const auto& rank = prepared.outcome.ranks.at(static_cast<std::size_t>(prepared.request.pipeline_rank));
        pinned_ = std::max(pinned_, types::in_gib(rank.pinned_arena) * kPinnedRoom);
        expected_ += expected / slower_;
        actual_ += seconds;
        slower_ = std::max(1.0, actual_ / expected_);
    }

private:
    std::optional<double> limit_;
    Clock::time_point start_ = Clock::now();
    double pinned_ = 0;
    double expected_ = 0;
    double actual_ = 0;
    double slower_ = 1;
};

/// The library, opened when the first configuration needs it; what it kept is given back at the end.
class LazyGpu {
public:
    LazyGpu() = default;
    LazyGpu(const LazyGpu&) = delete;
    LazyGpu(LazyGpu&&) = delete;
    LazyGpu& operator=(const LazyGpu&) = delete;
    LazyGpu& operator=(LazyGpu&&) = delete;
    ~LazyGpu() {
        if (verbs_ != nullptr) verbs_->release();
    }
    GpuVerbs& get() {
        if (verbs_ == nullptr) verbs_ = &open_gpu_verbs("validate");
        return *verbs_;
    }

private:
    GpuVerbs* verbs_ = nullptr;
};

class Runner {
public:
    Runner(const CommonOptions& common, const ValidationRunOptions& options, std::size_t items,
           SliceRecordings& recordings)
        : common_(common), options_(options), items_(items), recordings_(recordings), budget_(options.time_limit) {
        if (!options.out) return;
        std::error_code failed;
        fs::create_directories(*options.out, failed);
        if (failed) throw types::InputError(*options.out + ": error: cannot be made: " + failed.message());
    }

    void run(const ValidationItem& item) {
        ++number_;
        if (auto found = read_measured(item, options_)) {
            say_of(item, "is there already");
            result_.measured.push_back(std::move(*found));
            return;
        }
        if (item.scenario().implementation != types::Implementation::stowage)
            return leave_out(item, "its layers are Megatron's, which do not run here");
        try {
            execute(item);
        } catch (const NoDeviceError&) {
            throw;
        } catch (const types::Error& error) {
            say_of(item, first_line(error.what()));
            result_.failed.push_back({item.name, first_line(error.what())});
        }
    }

    ValidationRunResult take() { return std::move(result_); }

private:
    void say_of(const ValidationItem& item, const std::string& words) const {
        say(common_, fmt::format("[{}/{}] {}: {}", number_, items_, item.name, words));
    }

    void leave_out(const ValidationItem& item, const std::string& reason) {
        say_of(item, reason);
        result_.not_run.push_back({item.name, reason});
    }

    void execute(const ValidationItem& item) {
        PreparedItem ready = prepare_item(common_, item);
        PreparedExecution& prepared = ready.execution;
        const double expected = budget_.expected(prepared, ready.step);
        if (!budget_.fits(expected))
            return leave_out(item, fmt::format("would take {:.0f} s, which the time limit has not left", expected));
        set_up(prepared);
        record(item, prepared, expected);
        const Clock::time_point start = Clock::now();
        executor::ExecutionResult result = gpu_.get().execute(prepared.request, [](const std::string&) {});
        const double seconds = since(start);
        budget_.took(prepared, expected, seconds);
        keep(item, prepared, std::move(result));
        say_of(item, fmt::format("{:.1f} s", seconds));
    }

    /// The slice, if it has no recording yet. That it fails is told; the configuration is run all the same.
    void record(const ValidationItem& item, const PreparedExecution& prepared, double expected) {
        const types::Scenario& scenario = prepared.request.scenario;
        const std::int64_t rank = prepared.request.pipeline_rank;
        const bool wanted = options_.records && !not_recorded_.contains(recording_key(scenario, rank));
        if (!wanted || recordings_.find(scenario, rank) || !budget_.fits(2 * expected)) return;
        const executor::ExecutionRequest request = recording_request(prepared.request);
        const Clock::time_point start = Clock::now();
        try {
            recordings_.keep(scenario, rank,
                             recording_of(request, gpu_.get().execute(request, [](const std::string&) {})));
            say_of(item, fmt::format("{:.1f} s for the recording of its slice", since(start)));
        } catch (const NoDeviceError&) {
            throw;
        } catch (const types::Error& error) {
            not_recorded_.insert(recording_key(scenario, rank));
            say_of(item, std::string("its slice could not be recorded: ") + first_line(error.what()));
        }
    }

    void set_up(PreparedExecution& prepared) const {
        executor::ExecutionRequest& request = prepared.request;
        if (options_.gemm_table) request.gemm_table = options_.gemm_table;
        if (!request.gemm_table && options_.out) request.gemm_table = (fs::path(*options_.out) / "gemms.json").string();
        const auto& rank = prepared.outcome.ranks.at(static_cast<std::size_t>(request.pipeline_rank));
        request.keep_pinned =
            types::Bytes{static_cast<std::int64_t>(static_cast<double>(rank.pinned_arena.count) * kPinnedRoom)};
    }

    void keep(const ValidationItem& item, const PreparedExecution& prepared, executor::ExecutionResult result) {
        const reports::PredictedRank predicted =
            predict(prepared.outcome, prepared.request, program_of(prepared.job, prepared.request));
        MeasuredItem measured{
            item.name, item.name,
            reports::measurement_json(
                {std::move(result.measurement), prepared.policy.scenario, prepared.policy.choice, {}, predicted})};
        if (options_.out) {
            const fs::path path = measurement_path(*options_.out, item);
            reports::write_file(path, reports::to_text(measured.document));
            measured.file = path.string();
        }
        result_.measured.push_back(std::move(measured));
    }

    const CommonOptions& common_;
    const ValidationRunOptions& options_;
    std::size_t items_;
    SliceRecordings& recordings_;
    std::set<std::string> not_recorded_;  ///< slices whose recording failed or did not fit
    std::size_t number_ = 0;
    TimeBudget budget_;
    LazyGpu gpu_;
    ValidationRunResult result_;
};

}  // namespace

PreparedItem prepare_item(const CommonOptions& common, const ValidationItem& item) {
    CommonOptions quiet = common;
    quiet.quiet = true;  // what is left to the planner is the file's business, many times over
    const ExecutedPolicyOptions options = policy_options(item.settings);
    const auto* const planned = std::get_if<PolicyInput>(&item.source);
    ExecutedPolicy policy = planned != nullptr
                                ? executed_policy(*planned, options)
                                : executed_policy(quiet, std::get<reader::LoadedScenario>(item.source), options);
    PreparedItem ready;
    ready.execution = prepare_execution(quiet, std::move(policy), options, run_options(item.settings));
    ready.step = predicted_step(ready.execution);
    choose_steps(item.settings, ready.step, ready.execution.request);
    return ready;
}

ValidationRunResult find_measurements(const std::vector<ValidationItem>& items, const ValidationRunOptions& options) {
    ValidationRunResult result;
    for (const ValidationItem& item : items) {
        if (auto found = read_measured(item, options))
            result.measured.push_back(std::move(*found));
        else
            result.not_run.push_back({item.name, "there is no measurement of it"});
    }
    return result;
}

ValidationRunResult run_items(const CommonOptions& common, const std::vector<ValidationItem>& items,
                              const ValidationRunOptions& options, SliceRecordings& recordings) {
    Runner runner(common, options, items.size(), recordings);
    for (const ValidationItem& item : items) runner.run(item);
    return runner.take();
}

}  // namespace stowage::cli
