#pragma once

#include <optional>
#include <string>

#include "scenarios/reader/document.hpp"
#include "scenarios/reader/fields.hpp"

namespace stowage::reader {

/// A scalar read strictly: decimal digits only, no 0x10, 1_000, 010, 1e400 or nan, and text in quotes is never a
/// number.
struct ReadScalar {
    std::optional<ScalarValue> value;
    std::string message;  ///< what was found and what was expected, if there is no value
    std::string hint;
};

ReadScalar read_scalar(const Value& value, const ScalarKind& kind);

/// What a value is, for a message: `'text'`, `a list`, `nothing`.
std::string found(const Value& value);

/// What a kind accepts, for a message: `a whole number from 1 to 1000`.
std::string expected(const ScalarKind& kind);

}  // namespace stowage::reader
