// How the time of a simulation grows with the layers of a rank, with microbatches and with pipeline ranks, and what
// memory it takes: Llama 3 70B cut down or drawn out, nothing offloaded and core_attn offloaded. Items are operations
// of the stages that are reported, of all ranks, on one core. `items_per_second` stays where it is if growth is linear;
// `peak_mib` is the most that the process has held so far, so that it says something of the largest size alone.

#include <sys/resource.h>

#include <cstdint>

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"
#include "planner/search/candidates.hpp"
#include "planner/simulator/simulator.hpp"

namespace stowage::benchmarks {
namespace {

struct Size {
    std::int64_t layers = 8;  ///< of a rank
    std::int64_t microbatches = 32;
    std::int64_t ranks = 4;
};

search::Job job_of(const Size& size) {
    types::Scenario scenario = shipped_scenario("llama3-70b-tp4-pp4");
    scenario.model.num_layers = size.layers * size.ranks;
    scenario.batch.global_batch_size =
        size.microbatches * scenario.batch.micro_batch_size * scenario.parallel.data_parallel_size;
    scenario.parallel.pipeline_model_parallel_size = size.ranks;
    scenario.hardware.nodes = static_cast<int>(scenario.parallel.world_size() / scenario.hardware.node.gpus_per_node);
    return search::prepare(std::move(scenario));
}

double peak_mib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

void simulate(benchmark::State& state, const Size& size) {
    const search::Job job = job_of(size);
    types::OffloadChoice choice;
    if (state.range(1) != 0) choice = search::make_choice(job, types::ModuleSet{types::Module::core_attn}, 1);
    const auto ranks = lower_all(job, choice);
    const auto programs = programs_of(ranks);
    std::int64_t operations = 0;
    for (auto _ : state) operations = reported_operations(simulator::simulate(programs, job.scenario.hardware.node));
    state.SetItemsProcessed(state.iterations() * operations);
    state.counters["operations"] = static_cast<double>(operations);
    state.counters["peak_mib"] = peak_mib();
    state.SetLabel(state.range(1) != 0 ? "core_attn" : "nothing");
}

void layers(benchmark::State& state) { simulate(state, {.layers = state.range(0)}); }
void microbatches(benchmark::State& state) { simulate(state, {.microbatches = state.range(0)}); }
void ranks(benchmark::State& state) { simulate(state, {.ranks = state.range(0)}); }

void sizes(benchmark::internal::Benchmark* growth) {
    growth->Unit(benchmark::kMillisecond)->ArgNames({"", "offloading"});
}
BENCHMARK(layers)->ArgsProduct({{2, 4, 8, 16, 32}, {0, 1}})->Apply(sizes);
BENCHMARK(microbatches)->ArgsProduct({{16, 32, 64, 128, 256}, {0, 1}})->Apply(sizes);
BENCHMARK(ranks)->ArgsProduct({{1, 2, 4, 8, 16}, {0, 1}})->Apply(sizes);

}  // namespace
}  // namespace stowage::benchmarks
