#include "planner/search/baselines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/rules/legality.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/candidates.hpp"
#include "planner/search/evaluate_all.hpp"
#include "planner/search/search.hpp"

namespace stowage::search {
namespace {

bool legal(const Job& job, const OffloadChoice& choice) {
    const auto findings = rules::check(job.scenario, choice);
    return rules::worst(findings) < rules::Verdict::hazard;
}

/// The largest legal set of modules that have a site.
types::ModuleSet all_modules(const Job& job) {
    const types::ModuleSet sites = modules_with_sites(job, job.scenario.offload.min_offloaded_tensor_size);
    types::ModuleSet best;
    for (const types::ModuleSet& subset : rules::legal_subsets(job.scenario, sites))
        if (subset.size() > best.size()) best = subset;
    return best;
}

class Baselines {
public:
    Baselines(const Job& job, const Outcome& nothing, const SearchOptions& options)
        : job_(job), nothing_(nothing), options_(options), modules_(all_modules(job)) {}

    std::vector<Baseline> run() {
        add("nothing", "no offloading", nothing_);
        if (modules_.empty()) return std::move(baselines_);
        const Outcome everything = simulate({modules_, 1});
        add("everything", modules_.joined(), everything);
        first_n_percent(everything);
        largest_first(everything);
        return std::move(baselines_);
    }

private:
    struct Tried {
        types::ModuleSet modules;
        double fraction;
    };
    Outcome simulate(Tried tried) {
        return evaluate(job_, make_choice(job_, tried.modules, tried.fraction), options_.simulation);
    }

    void add(std::string name, std::string description, const Outcome& outcome) {
        if (!outcome.runs()) return;
        baselines_.push_back({std::move(name), std::move(description), outcome, fits(job_, outcome)});
    }

    /// The legal tenths below 1, falling, up to the first that is not legal.
    [[nodiscard]] std::vector<OffloadChoice> tenths() const {
        std::vector<OffloadChoice> choices;
        for (int tenth = 9; tenth >= 1; --tenth) {
            const OffloadChoice choice = make_choice(job_, modules_, tenth / 10.0);
            if (!legal(job_, choice)) break;
            choices.push_back(choice);
        }
        return choices;
    }

    /// Goes down by tenths while it fits, as many at once as there are threads.
    void first_n_percent(const Outcome& everything) {
        Outcome best = everything;
        const std::vector<OffloadChoice> choices = tenths();
        bool fitting = fits(job_, best);
        for (auto begin = choices.begin(); fitting && begin != choices.end();) {
            const auto end = begin + std::min<std::ptrdiff_t>(threads_of(options_), choices.end() - begin);
            for (Outcome& less : evaluate_all(job_, {begin, end}, options_)) {
                fitting = fitting && fits(job_, less);
                if (fitting) best = std::move(less);
            }
            begin = end;
        }
        add("first_n_percent", fmt::format("all modules, fraction {}", best.choice.fraction), best);
    }

    void largest_first(const Outcome& everything) {
        std::vector<std::pair<std::int64_t, types::Module>> by_bytes;
        for (const types::Module module : modules_.list()) {
            const FlaggedGroups flagged = flagged_groups(job_, make_choice(job_, types::ModuleSet{module}, 1));
            by_bytes.emplace_back(-flagged.bytes_per_microbatch.count, module);
        }
        std::sort(by_bytes.begin(), by_bytes.end());
        types::ModuleSet taken;
        for (const auto& [bytes, module] : by_bytes) {
            if (taken.contains(module)) continue;
            taken.insert(module);
            if (module == types::Module::attn_proj) taken.insert(types::Module::core_attn);
            const Outcome outcome = taken == modules_ ? everything : simulate({taken, 1});
            if (fits(job_, outcome) || taken == modules_) {
                add("largest_first", taken.joined(), outcome);
                return;
            }
        }
    }

    const Job& job_;
    const Outcome& nothing_;
    const SearchOptions& options_;
    types::ModuleSet modules_;
    std::vector<Baseline> baselines_;
};

}  // namespace

std::vector<Baseline> baselines(const Job& job, const Outcome& nothing, const SearchOptions& options) {
    return Baselines(job, nothing, options).run();
}

}  // namespace stowage::search
