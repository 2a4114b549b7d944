#pragma once

#include <string>
#include <vector>

#include "planner/program/lowering.hpp"
#include "planner/search/job.hpp"

namespace stowage::benchmarks {

/// The names of the scenarios that ship, sorted.
const std::vector<std::string>& shipped();

/// scenarios/<name>.yaml, made ready.
search::Job shipped_job(const std::string& name);

/// Every module that the model has on its own and Megatron takes together, all of it: the longest programs.
types::OffloadChoice everything(const search::Job& job);

/// The programs of all ranks.
std::vector<program::Lowered> lower_all(const search::Job& job, const types::OffloadChoice& choice);

}  // namespace stowage::benchmarks
