#include <algorithm>
#include <memory>
#include <thread>

#include "cli/inputs.hpp"
#include "cli/outputs.hpp"
#include "cli/policy_input.hpp"
#include "cli/recording_input.hpp"
#include "cli/verb.hpp"
#include "planner/search/candidates.hpp"
#include "planner/search/floor.hpp"
#include "reports/document.hpp"
#include "reports/plan_json.hpp"
#include "reports/plan_text.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

struct SimulateOptions {
    CommonOptions common;
    std::string input;
    Overrides overrides;
    std::optional<std::string> recording;
    std::optional<std::string> out;
    std::optional<std::string> trace;
};

simulator::SimulationOptions all_cores() {
    simulator::SimulationOptions options;
    options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    return options;
}

/// With no more device memory than the limit, for a choice that would reserve more: nothing if it would not.
std::optional<search::Outcome> at_limit(const search::Job& job, const search::Outcome& outcome) {
    if (!outcome.runs()) return std::nullopt;
    const types::Bytes limit = job.scenario.device_memory_limit();
    if (outcome.fullest_rank().peak_device() <= limit) return std::nullopt;
    types::Bytes graphs;
    for (const search::RankOutcome& rank : outcome.ranks) graphs = std::max(graphs, rank.executable_graphs);
    simulator::SimulationOptions options = all_cores();
    options.device_memory = std::max(limit - graphs, types::Bytes{0});
    return search::evaluate(job, outcome.choice, options);
}

/// What the step is held against; nothing for a choice that stops.
std::optional<search::Floor> floor_under(const search::Job& job, const search::Outcome& outcome) {
    if (!outcome.runs()) return std::nullopt;
    if (outcome.choice.modules.empty()) return search::floor_of(job, outcome, outcome);
    const search::Outcome nothing = search::evaluate(job, search::make_choice(job, {}, 1), all_cores());
    return search::floor_of(job, nothing, outcome);
}

types::ExitCode run_simulate(const SimulateOptions& options) {
    PolicyInput simulated = reports::looks_like_json(options.input)
                                ? planned_policy(options.input, "simulate")
                                : own_policy(options.common, reader::load_scenario(options.input));
    options.overrides.apply(simulated.scenario);
    refuse_illegal(simulated.scenario, simulated.choice, "this policy");
    Outputs outputs(options.common, options.input, options.out, options.trace);
    search::Job job = search::prepare(std::move(simulated.scenario));
    if (options.recording) use_recording(job, *options.recording, options.input);
    const search::Outcome outcome = search::evaluate(job, simulated.choice, all_cores());
    const reports::Json document =
        reports::simulation_json(job, outcome, at_limit(job, outcome), floor_under(job, outcome));
    outputs.write_document(document);
    if (outcome.runs()) outputs.write_trace(job, outcome.choice);
    if (options.common.json)
        print(reports::to_text(document));
    else if (!options.common.quiet)
        print(reports::simulation_text(document));
    return outcome.runs() ? types::ExitCode::yes : types::ExitCode::no;
}

}  // namespace

void add_simulate_command(CLI::App& app, Run& chosen) {
    const auto options = std::make_shared<SimulateOptions>();
    CLI::App* const verb =
        add_verb(app, "simulate", "Simulates one policy: a scenario's own offload values, or a plan's choice.",
                 "stowage simulate plan.json --trace trace.json", options->common);
    verb->add_option("SCENARIO|PLAN", options->input, "scenario file (YAML) or plan (JSON)")->required();
    verb->add_option("--rules", options->overrides.rules, "Megatron-LM's version in place of the scenario's")
        ->type_name("RULES");
    verb->add_option("--recording", options->recording,
                     "kernels take the times that 'stowage profile' recorded; others are estimated")
        ->type_name("FILE");
    verb->add_option("--out", options->out, "write the simulation here (JSON)")->type_name("FILE");
    verb->add_option("--trace", options->trace, "write the simulated step here, for ui.perfetto.dev")
        ->type_name("FILE");
    verb->callback([options, &chosen] { chosen = [options] { return run_simulate(*options); }; });
}

}  // namespace stowage::cli
