#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "scenarios/types/bytes.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::reports {

/// Keys keep the order they were written in, so that the same answer is the same bytes.
using Json = nlohmann::ordered_json;

/// The document as text with an end of line: two spaces a level, lists and mappings that fit one line on one line.
std::string to_text(const Json& document);

/// Microseconds as files have them: whole nanoseconds are at most three decimals.
inline double file_microseconds(types::Nanoseconds time) { return types::in_microseconds(time); }

}  // namespace stowage::reports
