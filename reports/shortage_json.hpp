#pragma once

#include <string>

#include "planner/search/job.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// What becomes of a choice whose cache does not fit, on a device that has no more than the limit: `limited` is the
/// outcome simulated so. Either it runs, since the allocator gives its cache back when the device is full, or a rank
/// runs out of memory; then with what its allocator held.
Json at_limit_json(const search::Outcome& limited);

/// The same in words.
std::string at_limit_words(const Json& at_limit);

}  // namespace stowage::reports
