// How fast scenarios become programs; items are operations of the first iteration and of a steady one, instances
// expanded, of all pipeline ranks.

#include <benchmark/benchmark.h>

#include "benchmarks/shipped_jobs.hpp"

namespace stowage::benchmarks {
namespace {

void lowering(benchmark::State& state, const std::string& name, bool all) {
    const search::Job job = shipped_job(name);
    const types::OffloadChoice choice = all ? everything(job) : search::OffloadChoice{};
    std::int64_t operations = 0, instances = 0;
    for (auto _ : state) {
        operations = instances = 0;
        for (const program::Lowered& rank : lower_all(job, choice)) {
            for (const program::RunStage stage : {program::RunStage::record, program::RunStage::steady}) {
                operations += rank.program.operation_count(stage);
                instances += std::ssize(rank.program.instances(stage));
            }
        }
    }
    state.SetItemsProcessed(state.iterations() * operations);
    state.counters["instances_per_second"] =
        benchmark::Counter(static_cast<double>(state.iterations() * instances), benchmark::Counter::kIsRate);
}
const bool registered = (register_for_shipped("lowering", lowering), true);

}  // namespace
}  // namespace stowage::benchmarks
