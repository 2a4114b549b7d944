// The reference that the device is held against, against what the formats' tables say.

#include "tests/executor/workload/fp8_reference.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace stowage::executor {
namespace {

// Micikevicius et al., table 1: largest 448 and 57344, smallest normal 2^-6 and 2^-14, smallest 2^-9 and 2^-16.
TEST(Fp8Numbers, HaveTheLimitsOfTheirFormats) {
    EXPECT_EQ(kE4m3.largest(), 448.0F);
    EXPECT_EQ(kE5m2.largest(), 57344.0F);
    EXPECT_EQ(kE4m3.value(0x08), 1.0F / 64);
    EXPECT_EQ(kE5m2.value(0x04), 1.0F / 16384);
    EXPECT_EQ(kE4m3.value(0x01), 1.0F / 512);
    EXPECT_EQ(kE5m2.value(0x01), 1.0F / 65536);
    EXPECT_EQ(kE4m3.value(0xb8), -1.0F);  // 1 01110 00 0: exponent 7 - 7
}

// Between 16 and 18 in e4m3 lies 17, between 18 and 20 19: both are halfway, and go to 16 and 20, whose last bit is 0.
TEST(Fp8Numbers, RoundToNearestAndTiesToEven) {
    const auto rounded = [](float value) { return kE4m3.value(kE4m3.code(value)); };
    EXPECT_EQ(rounded(17.0F), 16.0F);
    EXPECT_EQ(rounded(19.0F), 20.0F);
    EXPECT_EQ(rounded(17.01F), 18.0F);
    EXPECT_EQ(rounded(-18.99F), -18.0F);
    EXPECT_EQ(rounded(1000.0F), 448.0F);
    EXPECT_EQ(rounded(1.0F / 1024), 0.0F);  // halfway between 0 and the smallest
    EXPECT_EQ(rounded(1.01F / 1024), 1.0F / 512);
}

TEST(Fp8Numbers, OfEveryCodeGiveItBack) {
    for (const Fp8Numbers& numbers : {kE4m3, kE5m2})
        for (int code = 0; code <= numbers.largest_code; ++code)
            for (const int sign : {0, 0x80}) {
                const auto whole = static_cast<std::uint8_t>(code | sign);
                EXPECT_EQ(numbers.code(numbers.value(whole)), whole);
            }
}

TEST(Fp8Numbers, OfATensorUseTheWholeRange) {
    const Fp8Tensor tensor = to_fp8({0.5F, -2.0F, 1.0F}, kE4m3);
    EXPECT_EQ(tensor.factor, 224.0F);
    EXPECT_EQ(tensor.codes, (std::vector<std::uint8_t>{0x6e, 0xfe, 0x76}));  // 112, -448, 224
}

}  // namespace
}  // namespace stowage::executor
