#pragma once

// Integers as text: a column of a table, short enough to ship and plain enough to read.
//
// Each integer in base 36 (digits 0-9, a-z, a minus in front), a comma between two; one that is repeated n times stands
// once, followed by `*` and n in base 36. Long columns are broken into lines between integers.
//
// Worked example: 0 0 0 35 -36 is "0*3,z,-10".
//
// Tested by: tests/scenarios/recording/integer_columns_test.cpp.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stowage::recording {

using Column = std::vector<std::int64_t>;

std::vector<std::string> lines_of(const Column& column);

/// What is wrong with a column's text.
struct ColumnFault {
    std::size_t line = 0;
    std::string reason;  ///< "expected ..., found ..."
};

/// The column of exactly `rows` integers that `lines` hold, or the first fault. Cost: O(rows), whatever the lines say.
std::variant<Column, ColumnFault> column_of(const std::vector<std::string>& lines, std::size_t rows);

}  // namespace stowage::recording
