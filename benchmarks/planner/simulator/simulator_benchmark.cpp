// How fast programs run in virtual time; items are operations of set-up, the first iteration and two steady ones, of
// all pipeline ranks, on one core.

#include "planner/simulator/simulator.hpp"

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"

namespace stowage::benchmarks {
namespace {

std::int64_t operations_of(const program::StepProgram& program) {
    return program.operation_count(program::RunStage::setup) + program.operation_count(program::RunStage::record) +
           2 * program.operation_count(program::RunStage::steady);
}

void simulation(benchmark::State& state) {
    const std::string& name = shipped()[static_cast<std::size_t>(state.range(0))];
    const search::Job job = shipped_job(name);
    const auto ranks = lower_all(job, state.range(1) != 0 ? everything(job) : search::OffloadChoice{});
    std::vector<const program::StepProgram*> programs;
    std::int64_t operations = 0;
    for (const program::Lowered& rank : ranks) {
        programs.push_back(&rank.program);
        operations += operations_of(rank.program);
    }
    for (auto _ : state) benchmark::DoNotOptimize(simulator::simulate(programs, job.scenario.hardware.node));
    state.SetItemsProcessed(state.iterations() * operations);
    state.SetLabel(name + (state.range(1) != 0 ? ", everything" : ", nothing"));
}
BENCHMARK(simulation)
    ->ArgsProduct({benchmark::CreateDenseRange(0, std::ssize(shipped()) - 1, 1), {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stowage::benchmarks
