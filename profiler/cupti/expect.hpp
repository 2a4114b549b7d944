#pragma once

#include "profiler/cupti/cupti_api.hpp"

namespace stowage::profiler {

/// Throws: CuptiError unless `result` is success: which call failed, what CUPTI says, and who may be in the way.
void expect(CuptiApi& cupti, CUptiResult result, const char* call);

}  // namespace stowage::profiler
