#pragma once

#include <string>

#include "scenarios/types/error.hpp"

namespace stowage::profiler {

/// CUPTI is missing or refuses: exit code 5. The message says which call, what CUPTI says, and what to do.
class CuptiError : public types::Error {
public:
    explicit CuptiError(const std::string& message);
};

}  // namespace stowage::profiler
