#pragma once

#include <functional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "planner/program/lowering.hpp"
#include "planner/search/job.hpp"
#include "planner/simulator/simulator.hpp"

namespace stowage::benchmarks {

/// The names of the scenarios that ship, sorted.
const std::vector<std::string>& shipped();

/// scenarios/<name>.yaml, and the same made ready.
types::Scenario shipped_scenario(const std::string& name);
search::Job shipped_job(const std::string& name);

/// Every module that the model has on its own and Megatron takes together, all of it: the longest programs.
types::OffloadChoice everything(const search::Job& job);

/// The programs of all ranks.
std::vector<program::Lowered> lower_all(const search::Job& job, const types::OffloadChoice& choice);
std::vector<const program::StepProgram*> programs_of(const std::vector<program::Lowered>& ranks);

/// Operations of set-up, the first iteration and the step that is reported, of all ranks; not of a step that was run
/// before that one.
std::int64_t reported_operations(const simulator::Prediction& prediction);

/// Registers `measure(state, name, everything)` as "<what>/<name>/nothing" and ".../everything" for every scenario that
/// ships.
void register_for_shipped(const std::string& what,
                          const std::function<void(benchmark::State&, const std::string&, bool)>& measure);

}  // namespace stowage::benchmarks
