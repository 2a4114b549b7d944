#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// Implementation and scope of a scenario's CUDA graphs; empty without graphs.
std::string graph_words(const Json& scenario);

/// Whether any of a document's ranks captures graphs.
bool have_graphs(const Json& ranks);

/// The driver's memory for a rank's graphs, beside what PyTorch reserves.
std::int64_t executable_graphs(const Json& rank);

/// What a rank, or a whole prediction, takes of a device at its peak: reserved, and the driver's memory for graphs.
/// Documents of older versions know only what is reserved.
std::int64_t peak_device(const Json& json);

/// How many graphs each rank has, how often it launches them and what they take; empty without graphs.
std::string graphs_section(const Json& ranks);

}  // namespace stowage::reports
