#include "scenarios/types/time.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "scenarios/types/error.hpp"

namespace stowage::types {
namespace {

TEST(Time, IsRoundedUpToWholeNanoseconds) {
    EXPECT_EQ(transfer_time(Bytes{1000}, {1e9}), Nanoseconds{1000});
    EXPECT_EQ(transfer_time(Bytes{1}, {3e9}), Nanoseconds{1});  // a third of one
    EXPECT_EQ(compute_time(1e12, {1e15}), Nanoseconds{1'000'000});
    EXPECT_EQ(transfer_time(Bytes{0}, {1e9}), Nanoseconds{0});
}

// 64-bit nanoseconds hold 292 years; a conversion beyond them has no defined result.
TEST(Time, OfMoreThanAnHourIsRefused) {
    EXPECT_EQ(transfer_time(Bytes{3600}, {1}), Nanoseconds{3'600'000'000'000});
    EXPECT_THROW(transfer_time(Bytes{3601}, {1}), UnsupportedError);
    EXPECT_THROW(compute_time(1e300, {1e-300}), UnsupportedError);
    try {
        compute_time(4e6, {1e3});
        FAIL() << "took it";
    } catch (const UnsupportedError& error) {
        EXPECT_EQ(std::string(error.what()),
                  "one operation would take more than an hour: 4e+06 FLOP at 1000 a second\n"
                  "hint: look at the sizes of the model and the batch, and at the hardware's rates");
    }
}

TEST(Time, NeedsARate) {
    EXPECT_THROW(transfer_time(Bytes{1}, {0}), std::logic_error);
    EXPECT_THROW(compute_time(1, {-1}), std::logic_error);
}

}  // namespace
}  // namespace stowage::types
