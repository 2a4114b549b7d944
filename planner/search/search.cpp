#include "planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "planner/rules/legality.hpp"
#include "planner/search/baselines.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/candidates.hpp"
#include "planner/search/evaluate_all.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::search {
namespace {

/// Candidates between two looks at the incumbent; fixed, so that the result does not depend on the number of threads.
constexpr std::size_t kBatch = 8;

/// Least first: step time, then bytes moved, then the order of the choices.
auto rank_of(const Outcome& outcome) {
    return std::tuple(outcome.step_time, outcome.offloaded_bytes(), outcome.choice.modules, -outcome.choice.fraction);
}

std::string describe_edge(const Outcome& edge) {
    std::int64_t flushes = 0;
    for (const RankOutcome& rank : edge.ranks) flushes = std::max(flushes, rank.cache_flushes);
    const std::string choice =
        edge.choice.modules.empty()
            ? "nothing offloaded"
            : fmt::format("{} at fraction {}", edge.choice.modules.joined(), edge.choice.fraction);
    return fmt::format(
        "at the edge: with {} it would run all the same, since PyTorch's allocator gives its cache back when the "
        "device is full "
        "(up to {} times a step on one rank): {:.2f} ms a step",
        choice, flushes, types::in_milliseconds(edge.step_time));
}

class Search {
public:
    Search(const Job& job, const SearchOptions& options) : job_(job), options_(options) {
        if (job.scenario.objective != types::Objective::step_time)
            throw types::UnsupportedError("objective: memory cannot be planned yet; use objective: step_time");
        plan_.device_limit = job.scenario.device_memory_limit();
        plan_.host_limit = job.scenario.host_memory_limit();
    }

    Plan run() {
        nothing_ = evaluate(job_, make_choice(job_, {}, 1), options_.simulation);
        consider(nothing_);
        space_ = enumerate(job_);
        plan_.rejections = space_.rejections;
        plan_.notes = space_.notes;
        note_limits_above_hardware();
        plan_.certificate.candidates = std::ssize(space_.candidates);
        const auto& asked = job_.scenario.offload.offload_modules;
        const bool forced = asked && !asked->empty();
        if (forced) {
            best_.reset();
            smallest_.reset();
            near_limit_.clear();
        }
        if (forced || !best_) search();
        conclude(forced);
        plan_.baselines = baselines(job_, nothing_, options_);
        return std::move(plan_);
    }

private:
    void note_limits_above_hardware() {
        const auto note = [this](const char* key, const std::optional<Bytes>& asked, Bytes there) {
            if (asked && *asked > there)
                plan_.notes.push_back(
                    fmt::format("limits.{}: {:.2f} GiB is more than the hardware has; planned within {:.2f} GiB", key,
                                types::in_gib(*asked), types::in_gib(there)));
        };
        note("device_memory", job_.scenario.limits.device_memory, job_.scenario.hardware.node.device.memory);
        note("host_memory_per_node", job_.scenario.limits.host_memory_per_node,
             job_.scenario.hardware.node.host_memory);
    }

    void consider(const Outcome& outcome) {
        if (!outcome.runs()) return;
        if (!smallest_ || outcome.fullest_rank().peak_device() < smallest_->fullest_rank().peak_device())
            smallest_ = outcome;
        if (!best_ && outcome.largest_allocated() <= plan_.device_limit) near_limit_.push_back(outcome);
        if (fits(job_, outcome) && (!best_ || rank_of(outcome) < rank_of(*best_))) best_ = outcome;
    }

    /// Whether a bound alone rules the choice out. Remembers what is not known of its peak.
    [[nodiscard]] bool discarded(const OffloadChoice& choice) {
        const FlaggedGroups flagged = flagged_groups(job_, choice);
        if (best_ && least_step_time(job_, nothing_, flagged) > best_->step_time) return true;
        const std::vector<Bytes> peaks = least_peaks(job_, nothing_, flagged);
        const Bytes peak = *std::max_element(peaks.begin(), peaks.end());
        if (!best_) too_large_.emplace_back(peak, choice);
        return peak > plan_.device_limit;
    }

    /// The smallest peak of choices that do not fit: those that the search stopped early are run to their ends, the
    /// ones with the lowest bounds first, until no bound is below the smallest peak found.
    void find_smallest() {
        std::stable_sort(too_large_.begin(), too_large_.end(),
                         [](const auto& left, const auto& right) { return left.first < right.first; });
        std::vector<OffloadChoice> batch;
        for (std::size_t i = 0; i < too_large_.size();) {
            batch.clear();
            for (; i < too_large_.size() && batch.size() < kBatch; ++i) {
                if (smallest_ && too_large_[i].first >= smallest_->fullest_rank().peak_device()) break;
                batch.push_back(too_large_[i].second);
            }
            if (batch.empty()) return;
            for (const Outcome& outcome : evaluate_all(job_, batch, options_)) consider(outcome);
        }
    }

    /// What PyTorch would do with choices whose tensors fit and whose cache does not: when the device is full the
    /// allocator gives the cache back. That only takes time, so the fastest without it are tried first.
    void find_edge() {
        std::stable_sort(near_limit_.begin(), near_limit_.end(),
                         [](const Outcome& left, const Outcome& right) { return rank_of(left) < rank_of(right); });
        SearchOptions limited = options_;
        // The driver's memory for graphs is not the allocator's to take.
        Bytes graphs;
        for (const Outcome& outcome : near_limit_)
            for (const RankOutcome& rank : outcome.ranks) graphs = std::max(graphs, rank.executable_graphs);
        limited.simulation.device_memory = std::max(plan_.device_limit - graphs, Bytes{0});
        std::vector<OffloadChoice> batch;
        for (std::size_t i = 0; i < near_limit_.size();) {
            batch.clear();
            for (; i < near_limit_.size() && batch.size() < kBatch; ++i) {
                if (plan_.edge && near_limit_[i].step_time >= plan_.edge->step_time) break;
                batch.push_back(near_limit_[i].choice);
            }
            if (batch.empty()) return;
            for (const Outcome& outcome : evaluate_all(job_, batch, limited))
                if (fits(job_, outcome) && (!plan_.edge || rank_of(outcome) < rank_of(*plan_.edge)))
                    plan_.edge = outcome;
        }
    }

    void search() {
        const auto begin = std::chrono::steady_clock::now();
        auto out_of_time = [&] {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
            return options_.time_limit_seconds && passed.count() > *options_.time_limit_seconds;
        };
        SearchOptions stopping = options_;
        stopping.simulation.stop_above_allocated = plan_.device_limit;
        std::vector<OffloadChoice> batch;
        for (std::size_t i = 0; i < space_.candidates.size();) {
            if (out_of_time()) {
                plan_.certificate.complete = false;
                return;
            }
            batch.clear();
            for (; i < space_.candidates.size() && batch.size() < kBatch; ++i) {
                if (discarded(space_.candidates[i]))
                    ++plan_.certificate.pruned;
                else
                    batch.push_back(space_.candidates[i]);
            }
            plan_.certificate.simulated += std::ssize(batch);
            for (const Outcome& outcome : evaluate_all(job_, batch, stopping)) consider(outcome);
            if (options_.progress) options_.progress(static_cast<std::int64_t>(i), std::ssize(space_.candidates));
        }
    }

    void conclude(bool forced) {
        plan_.floor = best_ ? floor_of(job_, nothing_, *best_) : floor_of(nothing_);
        plan_.certificate.lower_bound = nothing_.step_time;
        if (!best_) {
            if (plan_.certificate.complete) find_smallest();
            find_edge();
            if (plan_.edge) plan_.notes.push_back(describe_edge(*plan_.edge));
            if (!smallest_) smallest_ = nothing_;
            plan_.verdict = PlanVerdict::infeasible;
            plan_.smallest = smallest_;
            plan_.limited_by = limit_broken(job_, *smallest_);
            return;
        }
        plan_.verdict = forced || !best_->choice.modules.empty() ? PlanVerdict::plan : PlanVerdict::nothing_to_do;
        plan_.certificate.gap =
            static_cast<double>(best_->step_time.count()) / static_cast<double>(plan_.certificate.lower_bound.count()) -
            1;
        plan_.chosen = std::move(best_);
    }

    const Job& job_;
    const SearchOptions& options_;
    Plan plan_;
    Outcome nothing_;
    CandidateSpace space_;
    std::optional<Outcome> best_;
    std::optional<Outcome> smallest_;
    std::vector<Outcome> near_limit_;  ///< while nothing fits: tensors within the limit
    std::vector<std::pair<Bytes, OffloadChoice>>
        too_large_;  ///< while nothing fits: choices, with the bounds of their peaks
};

}  // namespace

bool fits(const Job& job, const Outcome& outcome) {
    if (!outcome.runs()) return false;
    return outcome.fullest_rank().peak_device() <= job.scenario.device_memory_limit() &&
           pinned_on_fullest_node(job, outcome) <= job.scenario.host_memory_limit();
}

std::string limit_broken(const Job& job, const Outcome& outcome) {
    const RankOutcome& fullest = outcome.fullest_rank();
    const Bytes limit = job.scenario.device_memory_limit();
    if (fullest.peak_device() > limit) {
        const bool hopeless = fullest.static_bytes > limit;
        return fmt::format(
            "device memory of pipeline rank {}: {:.2f} GiB {} at the peak, {:.2f} GiB over the limit of {:.2f} GiB "
            "({:.2f} GiB of it static{})",
            fullest.pipeline_rank, types::in_gib(fullest.peak_device()),
            fullest.executable_graphs > Bytes{0} ? "reserved and taken by graphs" : "reserved",
            types::in_gib(fullest.peak_device() - limit), types::in_gib(limit), types::in_gib(fullest.static_bytes),
            hopeless
                ? ", more than the limit by itself: no offloading of activations helps, spread the model over more GPUs"
                : "");
    }
    const Bytes pinned = pinned_on_fullest_node(job, outcome);
    const Bytes host = job.scenario.host_memory_limit();
    if (pinned > host)
        return fmt::format("pinned host memory of a node: {:.2f} GiB, {:.2f} GiB over the limit of {:.2f} GiB",
                           types::in_gib(pinned), types::in_gib(pinned - host), types::in_gib(host));
    return "no legal choice";
}

Plan make_plan(const Job& job, const SearchOptions& options) { return Search(job, options).run(); }

}  // namespace stowage::search
