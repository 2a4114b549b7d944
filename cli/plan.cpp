#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "cli/inputs.hpp"
#include "cli/outputs.hpp"
#include "cli/recording_input.hpp"
#include "cli/verb.hpp"
#include "planner/search/search.hpp"
#include "reports/plan_json.hpp"
#include "reports/plan_text.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

struct PlanOptions {
    CommonOptions common;
    std::string scenario;
    Overrides overrides;
    std::optional<std::string> time_limit;
    std::optional<std::string> out;
    std::optional<std::string> trace;
    std::string space = "megatron";
    std::vector<std::string> allowed_hazards;
    std::optional<std::string> recording;
    std::optional<std::string> front;
    std::optional<std::string> max_slowdown;
};

void refuse(bool asked, const std::string& option, const std::string& why) {
    if (asked) throw CommandLineError(option + " is not in this version: " + why);
}

void refuse_what_is_not_here(const PlanOptions& options) {
    refuse(options.space == "free", "--space free", "it plans what Megatron's flags can express (--space megatron)");
    refuse(options.front.has_value(), "--front", "it gives one plan, the fastest that fits");
    refuse(options.max_slowdown.has_value(), "--max-slowdown", "it looks for the least step time");
    refuse(!options.allowed_hazards.empty(), "--allow-hazard",
           "choices with a known hazard are never taken; 'stowage simulate' runs one");
    if (options.space != "megatron")
        throw CommandLineError("--space: found '" + options.space + "', expected megatron or free");
}

/// One line that rewrites itself, on a terminal only.
class Progress {
public:
    explicit Progress(bool quiet) : shown_(!quiet && isatty(STDERR_FILENO) != 0) {}
    Progress(const Progress&) = delete;
    Progress(Progress&&) = delete;
    Progress& operator=(const Progress&) = delete;
    Progress& operator=(Progress&&) = delete;
    ~Progress() {
        if (shown_) std::fputs("\r\033[K", stderr);
    }
    void operator()(std::int64_t done, std::int64_t all) const {
        if (shown_) fmt::print(stderr, "\r\033[Kplanning: {} of {} choices", done, all);
    }

private:
    bool shown_;
};

/// A simulation takes either objective: it has nothing to choose.
void require_objective(const reader::LoadedScenario& loaded) {
    if (loaded.scenario.objective != types::Objective::step_time)
        throw types::InputError(loaded.where.describe("objective", "this version cannot plan objective: memory",
                                                      "use objective: step_time"));
}

types::ExitCode run_plan(const PlanOptions& options) {
    refuse_what_is_not_here(options);
    search::SearchOptions search_options;
    if (options.time_limit) search_options.time_limit_seconds = parse_seconds("--time-limit", *options.time_limit);
    reader::LoadedScenario loaded = reader::load_scenario(options.scenario);
    options.overrides.apply(loaded.scenario);
    refuse_job(loaded.scenario);
    require_plannable(loaded);
    require_objective(loaded);
    Outputs outputs(options.common, options.scenario, options.out, options.trace);
    search::Job job = search::prepare(std::move(loaded.scenario));
    if (options.recording) use_recording(job, *options.recording, options.scenario);
    const search::Plan plan = [&] {
        const Progress progress(options.common.quiet);
        search_options.progress = std::cref(progress);
        return search::make_plan(job, search_options);
    }();

    const reports::Json document = reports::plan_json(job, plan);
    outputs.write_document(document);
    const std::optional<search::Outcome>& shown = plan.chosen ? plan.chosen : plan.smallest;
    if (shown) outputs.write_trace(job, shown->choice);
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(reports::plan_text(document));
    return plan.chosen ? types::ExitCode::yes : types::ExitCode::no;
}

}  // namespace

void add_plan_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<PlanOptions>();
    CLI::App* const verb =
        add_verb(app, "plan", "Finds what to offload: the least step time that fits the memory.",
                 "stowage plan scenarios/llama3-70b-tp4-pp4.yaml --out plan.json --trace trace.json", options->common);
    verb->add_option("SCENARIO", options->scenario, "scenario file (YAML)")->required();
    verb->add_option("--out", options->out, "write the plan here (JSON)")->type_name("FILE");
    verb->add_option("--trace", options->trace, "write the simulated step here, for ui.perfetto.dev")
        ->type_name("FILE");
    verb->add_option("--device-memory", options->overrides.device_memory, "limit of a GPU in place of the scenario's")
        ->type_name("SIZE");
    verb->add_option("--host-memory", options->overrides.host_memory,
                     "limit of pinned memory of a node in place of the scenario's")
        ->type_name("SIZE");
    verb->add_option("--rules", options->overrides.rules, "Megatron-LM's version in place of the scenario's")
        ->type_name("RULES");
    verb->add_option("--time-limit", options->time_limit, "stop the search after so many seconds")
        ->type_name("SECONDS");
    verb->add_option("--space", options->space, "megatron: what Megatron's flags express; free: not in this version")
        ->type_name("SPACE");
    verb->add_option("--allow-hazard", options->allowed_hazards, "not in this version")->type_name("ID");
    verb->add_option("--recording", options->recording,
                     "kernels take the times that 'stowage profile' recorded; others are estimated")
        ->type_name("FILE");
    verb->add_option("--front", options->front, "not in this version")->type_name("N");
    verb->add_option("--max-slowdown", options->max_slowdown, "not in this version")->type_name("P");
    verb->callback([options, &chosen] { chosen = [options] { return run_plan(*options); }; });
}

}  // namespace stowage::cli
