#pragma once

#include <string>

#include "cli/verb.hpp"
#include "planner/search/job.hpp"

namespace stowage::cli {

/// Simulates the choice once more, keeping its timeline, and writes that for a trace viewer.
void write_trace_file(const CommonOptions& common, const search::Job& job, const types::OffloadChoice& choice,
                      const std::string& path);

}  // namespace stowage::cli
