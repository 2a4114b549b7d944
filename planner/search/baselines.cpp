#include "planner/search/baselines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/rules/legality.hpp"
#include "planner/search/bounds.hpp"
#include "planner/search/candidates.hpp"
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
        largest_first();
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

    /// Goes down by tenths while it fits.
    void first_n_percent(const Outcome& everything) {
        Outcome best = everything;
        for (int tenths = 9; tenths >= 1 && fits(job_, best); --tenths) {
            const OffloadChoice choice = make_choice(job_, modules_, tenths / 10.0);
            if (!legal(job_, choice)) break;
            Outcome less = simulate({modules_, tenths / 10.0});
            if (!fits(job_, less)) break;
            best = std::move(less);
        }
        add("first_n_percent", fmt::format("all modules, fraction {}", best.choice.fraction), best);
    }

    void largest_first() {
        std::vector<std::pair<std::int64_t, types::Module>> by_bytes;
        for (const types::Module module : modules_.list()) {
            const FlaggedGroups flagged = flagged_groups(job_, make_choice(job_, types::ModuleSet{module}, 1));
            by_bytes.emplace_back(-flagged.bytes_per_microbatch.count, module);
        }
        std::sort(by_bytes.begin(), by_bytes.end());
        types::ModuleSet taken;
        for (const auto& [bytes, module] : by_bytes) {
            taken.insert(module);
            if (module == types::Module::attn_proj) taken.insert(types::Module::core_attn);
            const Outcome outcome = simulate({taken, 1});
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
