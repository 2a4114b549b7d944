// What a user waits for: one choice lowered and simulated, and a whole plan.

#include "planner/search/search.hpp"

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"

namespace stowage::benchmarks {
namespace {

void evaluation(benchmark::State& state, const std::string& name, bool all) {
    const search::Job job = shipped_job(name);
    const types::OffloadChoice choice = all ? everything(job) : search::OffloadChoice{};
    for (auto _ : state) benchmark::DoNotOptimize(search::evaluate(job, choice));
}

void plan(benchmark::State& state, const std::string& name) {
    const search::Job job = shipped_job(name);
    search::Plan made;
    for (auto _ : state) made = search::make_plan(job);
    state.counters["candidates"] = static_cast<double>(made.certificate.candidates);
    state.counters["simulated"] = static_cast<double>(made.certificate.simulated);
    state.SetLabel(std::string(types::name_of(made.verdict)));
}

const bool registered = [] {
    register_for_shipped("evaluation", evaluation);
    for (const std::string& name : shipped())
        benchmark::RegisterBenchmark(("plan/" + name).c_str(), [name](benchmark::State& state) { plan(state, name); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime()
            ->Iterations(1);
    return true;
}();

}  // namespace
}  // namespace stowage::benchmarks
