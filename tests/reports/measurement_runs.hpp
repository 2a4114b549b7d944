#pragma once

#include "reports/measurement_json.hpp"

namespace stowage::reports {

/// A measurement in which every field has a value of its own, so that one that is lost or swapped shows.
MeasuredRun a_measured_run();

}  // namespace stowage::reports
