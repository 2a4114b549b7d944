#pragma once

#include <cstdint>
#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// Numbers as terminals show them; the unit stands in the heading or beside it.
std::string gib(std::int64_t bytes);            ///< 71.25
std::string short_gib(std::int64_t bytes);      ///< 76, 139.29
std::string milliseconds(double microseconds);  ///< 3120.42
std::string percent(double fraction);           ///< 1.2 %
std::string grouped(std::int64_t number);       ///< 30,532,122,624

}  // namespace stowage::reports
