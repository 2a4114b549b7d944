#include "benchmarks/shipped_jobs.hpp"

#include <algorithm>
#include <filesystem>

#include "planner/rules/legality.hpp"
#include "planner/search/candidates.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::benchmarks {

const std::vector<std::string>& shipped() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_SOURCE_DIR "/scenarios"))
            if (entry.path().extension() == ".yaml") found.push_back(entry.path().stem().string());
        std::sort(found.begin(), found.end());
        return found;
    }();
    return names;
}

types::Scenario shipped_scenario(const std::string& name) {
    return reader::read_scenario(STOWAGE_SOURCE_DIR "/scenarios/" + name + ".yaml");
}

search::Job shipped_job(const std::string& name) { return search::prepare(shipped_scenario(name)); }

types::OffloadChoice everything(const search::Job& job) {
    types::ModuleSet most;
    for (const types::ModuleSet& modules : rules::legal_subsets(
             job.scenario, search::modules_with_sites(job, job.scenario.offload.min_offloaded_tensor_size)))
        if (modules.size() > most.size()) most = modules;
    return search::make_choice(job, most, 1);
}

std::vector<program::Lowered> lower_all(const search::Job& job, const types::OffloadChoice& choice) {
    const program::Durations durations(job.scenario.hardware, job.scenario.parallel);
    std::vector<program::Lowered> ranks;
    for (const layers::StageLayers& stage : job.stages)
        ranks.push_back(program::lower(stage, job.scenario.microbatches(), choice, job.scenario.rules, durations));
    return ranks;
}

std::vector<const program::StepProgram*> programs_of(const std::vector<program::Lowered>& ranks) {
    std::vector<const program::StepProgram*> programs;
    for (const program::Lowered& rank : ranks) programs.push_back(&rank.program);
    return programs;
}

std::int64_t reported_operations(const simulator::Prediction& prediction) {
    std::int64_t operations = 0;
    for (const simulator::RankPrediction& rank : prediction.ranks)
        operations += rank.setup.operations + rank.record.operations + rank.steady.operations;
    return operations;
}

void register_for_shipped(const std::string& what,
                          const std::function<void(benchmark::State&, const std::string&, bool)>& measure) {
    for (const std::string& name : shipped())
        for (const bool all : {false, true})
            benchmark::RegisterBenchmark((what + "/" + name + (all ? "/everything" : "/nothing")).c_str(),
                                         [measure, name, all](benchmark::State& state) { measure(state, name, all); })
                ->Unit(benchmark::kMillisecond);
}

}  // namespace stowage::benchmarks
