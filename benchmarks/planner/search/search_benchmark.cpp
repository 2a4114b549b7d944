// What a user waits for: one choice lowered and simulated, and a whole plan.

#include "planner/search/search.hpp"

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"

namespace stowage::benchmarks {
namespace {

void evaluation(benchmark::State& state) {
    const std::string& name = shipped()[static_cast<std::size_t>(state.range(0))];
    const search::Job job = shipped_job(name);
    const types::OffloadChoice choice = everything(job);
    for (auto _ : state) benchmark::DoNotOptimize(search::evaluate(job, choice));
    state.SetLabel(name + ", everything");
}
BENCHMARK(evaluation)->DenseRange(0, std::ssize(shipped()) - 1)->Unit(benchmark::kMillisecond);

void plan(benchmark::State& state) {
    const std::string& name = shipped()[static_cast<std::size_t>(state.range(0))];
    const search::Job job = shipped_job(name);
    search::Plan made;
    for (auto _ : state) made = search::make_plan(job);
    state.counters["candidates"] = static_cast<double>(made.certificate.candidates);
    state.counters["simulated"] = static_cast<double>(made.certificate.simulated);
    state.SetLabel(name + ", " + std::string(types::name_of(made.verdict)));
}
BENCHMARK(plan)->DenseRange(0, std::ssize(shipped()) - 1)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

}  // namespace
}  // namespace stowage::benchmarks
