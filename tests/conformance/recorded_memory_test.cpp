#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/recorded_rows.hpp"

namespace stowage::tests {
namespace {

double error(types::Bytes predicted, std::int64_t recorded) {
    return static_cast<double>(predicted.count) / static_cast<double>(recorded) - 1;
}

void print_row(const RecordedRow& row, const Memory<types::Bytes>& predicted) {
    fmt::print("{}\n  allocated {:>14} of {:>14} {:+.3f} %\n", row.name, predicted.allocated.count,
               row.recorded.allocated, 100 * error(predicted.allocated, row.recorded.allocated));
    if (row.recorded.peak == 0) return;
    fmt::print("  peak      {:>14} of {:>14} {:+.3f} %\n", predicted.peak.count, row.recorded.peak,
               100 * error(predicted.peak, row.recorded.peak));
}

TEST(RecordedMemory, OfMegatronIsPredictedWithinTheBarOfEachRow) {
    for (const RecordedRow& row : recorded_rows()) {
        const Memory<types::Bytes> predicted = predict(row);
        print_row(row, predicted);
        EXPECT_NEAR(error(predicted.allocated, row.recorded.allocated), 0, row.bar.allocated) << row.name;
        if (row.recorded.peak > 0) {
            EXPECT_NEAR(error(predicted.peak, row.recorded.peak), 0, row.bar.peak) << row.name;
        }
        // A bar above 1 % is a difference that is understood.
        EXPECT_EQ(std::max(row.bar.allocated, row.bar.peak) > 0.01, !row.cause.empty()) << row.name;
    }
}

}  // namespace
}  // namespace stowage::tests
