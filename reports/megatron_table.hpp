#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// The ranks of one pipeline rank, all with the same numbers: the bytes that Megatron-LM counts, by module. A module
/// with no counted group has no entry.
struct SummaryStage {
    std::int64_t ranks = 0;
    std::map<std::string, std::int64_t> bytes;
};

/// Megatron-LM's summary of activation offloading, byte for byte as the first rank of one process group prints it after
/// the first iteration, blank lines before and after included. Its "MB" are MiB. Ranks are numbered within the group,
/// stage after stage. Source: Megatron-LM, core/pipeline_parallel/fine_grained_activation_offload.py.
std::string summary_table(std::span<const SummaryStage> stages);

/// The summaries that a job with this plan prints, and below them what a whole step moves. The process group is a
/// pipeline rank's under the rule sets main-2026-08 and dev, one table each, and all ranks' before them.
/// Limits: a column of nothing but zeros, which Megatron-LM prints of groups whose tensors are all below the minimum
/// size, is left out.
std::string megatron_tables(const Json& plan);

}  // namespace stowage::reports
