#pragma once

#include <string>
#include <vector>

#include "planner/program/lowering.hpp"
#include "planner/search/job.hpp"

namespace stowage::benchmarks {

/// The scenarios that ship and are measured: a dense model on 4 stages, one with experts on one stage and on 8.
inline const std::vector<std::string> kShipped{"llama3-70b-tp4-pp4", "qwen3-30b-a3b-ep16", "qwen3-235b-a22b-pp8-ep32"};

/// scenarios/<name>.yaml, made ready.
search::Job shipped_job(const std::string& name);

/// Every module that the model has on its own and Megatron takes together, all of it: the longest programs.
types::OffloadChoice everything(const search::Job& job);

/// The programs of all ranks.
std::vector<program::Lowered> lower_all(const search::Job& job, const types::OffloadChoice& choice);

}  // namespace stowage::benchmarks
