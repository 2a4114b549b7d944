// How fast programs run in virtual time; items are the operations of the stages that are reported, of all pipeline
// ranks, on one core.

#include "planner/simulator/simulator.hpp"

#include <algorithm>

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"

namespace stowage::benchmarks {
namespace {

void simulation(benchmark::State& state, const std::string& name, bool all) {
    const search::Job job = shipped_job(name);
    const auto ranks = lower_all(job, all ? everything(job) : search::OffloadChoice{});
    const auto programs = programs_of(ranks);
    if (std::any_of(ranks.begin(), ranks.end(), [](const program::Lowered& rank) { return rank.chunk_mismatch; }))
        return state.SkipWithError("Megatron stops in the second iteration");
    std::int64_t operations = 0;
    for (auto _ : state) operations = reported_operations(simulator::simulate(programs, job.scenario.hardware.node));
    state.SetItemsProcessed(state.iterations() * operations);
}
const bool registered = (register_for_shipped("simulation", simulation), true);

}  // namespace
}  // namespace stowage::benchmarks
