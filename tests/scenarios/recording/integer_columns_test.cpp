#include "scenarios/recording/integer_columns.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace stowage::recording {
namespace {

using Lines = std::vector<std::string>;

// 35 is z, 36 is 10 in base 36.
TEST(IntegerColumns, AreShortAndPlain) {
    EXPECT_EQ(lines_of({0, 0, 0, 35, -36}), Lines{"0*3,z,-10"});
    EXPECT_EQ(lines_of({}), Lines{});
    EXPECT_EQ(std::get<Column>(column_of({"0*3,z,-10"}, 5)), (Column{0, 0, 0, 35, -36}));
    EXPECT_EQ(std::get<Column>(column_of({}, 0)), Column{});
}

TEST(IntegerColumns, ComeBackAsTheyWere) {
    std::mt19937_64 engine(1);
    Column column{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), 0, -1};
    for (int i = 0; i < 5000; ++i) {
        const auto value = static_cast<std::int64_t>(engine() >> (engine() % 64));
        column.insert(column.end(), 1 + engine() % 3, value);
    }
    const Lines lines = lines_of(column);
    EXPECT_GT(lines.size(), 10U);
    for (const std::string& line : lines) EXPECT_LT(line.size(), 540U);
    EXPECT_EQ(std::get<Column>(column_of(lines, column.size())), column);
}

std::string fault(const Lines& lines, std::size_t rows) {
    const auto column = column_of(lines, rows);
    const auto* const found = std::get_if<ColumnFault>(&column);
    return found == nullptr ? "none" : std::to_string(found->line) + ": " + found->reason;
}

TEST(IntegerColumns, SayWhatIsWrongWithThem) {
    EXPECT_EQ(fault({"1,2", "3,?"}, 4), "1: expected an integer in base 36, as '-1z' or '0*a', found '?'");
    EXPECT_EQ(fault({"1,,2"}, 3), "0: expected an integer in base 36, as '-1z' or '0*a', found ''");
    EXPECT_EQ(fault({"1*0"}, 1), "0: expected an integer in base 36, as '-1z' or '0*a', found '1*0'");
    EXPECT_EQ(fault({"1*-1"}, 1), "0: expected an integer in base 36, as '-1z' or '0*a', found '1*-1'");
    EXPECT_EQ(fault({"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"}, 1),
              "0: expected an integer in base 36, as '-1z' or '0*a', found 'zzzzzzzzzzzzzzzzzzzzzzzz...'");
    EXPECT_EQ(fault({"1,2"}, 3), "0: expected 3 integers, found 2");
    EXPECT_EQ(fault({"1,2", "3"}, 2), "1: expected 2 integers, found more");
    // A run that would fill the memory is more than there are rows.
    EXPECT_EQ(fault({"0*zzzzzzzzzz"}, 3), "0: expected 3 integers, found more");
    EXPECT_EQ(fault({}, 1), "0: expected 1 integers, found 0");
}

}  // namespace
}  // namespace stowage::recording
