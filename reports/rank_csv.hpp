#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// The per-rank table of a plan or simulation as CSV (RFC 4180, bytes and microseconds): one line a pipeline rank, one
/// column a module that moved. An infeasible plan gives the ranks of its smallest choice.
std::string rank_csv(const Json& document);

}  // namespace stowage::reports
