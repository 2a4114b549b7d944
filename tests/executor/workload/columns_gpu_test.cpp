// Two matrices side by side, apart again, and the second half of one.

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;

class Columns : public WorkloadGpu {};

CallSizes sizes_of(std::int64_t rows, std::int64_t columns) {
    CallSizes sizes;
    sizes.rows = rows;
    sizes.columns = columns;
    return sizes;
}

/// Row by row the columns of both.
Values joined(const Values& first, const Values& second, std::int64_t columns) {
    Values both;
    for (auto row = std::ptrdiff_t{0}; row < std::ssize(first); row += columns) {
        both.insert(both.end(), first.begin() + row, first.begin() + row + columns);
        both.insert(both.end(), second.begin() + row, second.begin() + row + columns);
    }
    return both;
}

TEST_F(Columns, LieSideBySideAndApartAgain) {
    for (const auto& [rows, columns] :
         {std::pair<std::int64_t, std::int64_t>{1, 8}, {1, 40'008}, {37, 520}, {4096, 8}, {1031, 7168}}) {
        const Values first = random_values(rows * columns, 1);
        const Values second = random_values(rows * columns, 2);
        const Buffer first_buffer = bf16_buffer(first);
        const Buffer second_buffer = bf16_buffer(second);
        const Buffer both = empty_bf16(2 * rows * columns);
        run(Call::join_columns, sizes_of(rows, columns), {&first_buffer, &second_buffer, &both});
        EXPECT_EQ(both.read_bf16(), joined(first, second, columns)) << rows << " x " << columns;
        const Buffer left = empty_bf16(rows * columns);
        const Buffer right = empty_bf16(rows * columns);
        run(Call::split_columns, sizes_of(rows, columns), {&both, &left, &right});
        EXPECT_EQ(left.read_bf16(), first) << rows << " x " << columns;
        EXPECT_EQ(right.read_bf16(), second) << rows << " x " << columns;
    }
}

TEST_F(Columns, AreMultiplesOfEight) {
    const Buffer narrow = empty_bf16(12);
    const Buffer wide = empty_bf16(24);
    EXPECT_THROW(run(Call::join_columns, sizes_of(1, 12), {&narrow, &narrow, &wide}), types::UnsupportedError);
    EXPECT_THROW(run(Call::split_columns, sizes_of(1, 12), {&wide, &narrow, &narrow}), types::UnsupportedError);
}

TEST_F(Columns, TheFirstOrTheSecondHalfOfRowsIsKept) {
    const Values both = random_values(2 * 5 * 16, 3);
    const Buffer buffer = bf16_buffer(both);
    for (const bool second : {false, true}) {
        CallSizes sizes = sizes_of(5, 16);
        sizes.batch = 2;
        sizes.shift = second;
        const Buffer half = empty_bf16(5 * 16);
        run(Call::keep_rows, sizes, {&buffer, &half});
        const auto begin = both.begin() + (second ? 80 : 0);
        EXPECT_EQ(half.read_bf16(), Values(begin, begin + 80));
    }
}

}  // namespace
}  // namespace stowage::executor
