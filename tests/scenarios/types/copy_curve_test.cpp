#include <gtest/gtest.h>

#include <stdexcept>

#include "scenarios/types/hardware.hpp"

namespace stowage::types {
namespace {

using namespace std::chrono_literals;

/// Device to host on one H200, pinned, one stream: measured 2026-11-29.
CopyCurve h200_device_to_host() {
    return CopyCurve({{64_KiB, 2700ns},
                      {256_KiB, 6200ns},
                      {1_MiB, 20900ns},
                      {4_MiB, 77600ns},
                      {16_MiB, 305us},
                      {64_MiB, 1217us},
                      {1_GiB, 19411us}});
}

TEST(CopyCurve, EqualsTheMeasuredTimesAtTheirSizes) {
    const CopyCurve curve = h200_device_to_host();
    for (const CopyPoint& point : curve.points()) EXPECT_EQ(curve.time(point.size), point.time);
}

TEST(CopyCurve, LiesBetweenItsNeighboursInBetween) {
    const CopyCurve curve = h200_device_to_host();
    for (std::size_t i = 1; i < curve.points().size(); ++i) {
        const CopyPoint& low = curve.points()[i - 1];
        const CopyPoint& high = curve.points()[i];
        for (int step = 1; step < 16; ++step) {
            const Bytes size{low.size.count + (high.size - low.size).count * step / 16};
            EXPECT_GT(curve.time(size), low.time) << size.count;
            EXPECT_LT(curve.time(size), high.time) << size.count;
        }
    }
}

TEST(CopyCurve, KeepsTheLastRateAboveTheTable) {
    // 2 GiB take twice what 1 GiB takes.
    EXPECT_EQ(h200_device_to_host().time(2_GiB), 38822us);
}

TEST(CopyCurve, NeverFallsBelowTheFixedCostBelowTheTable) {
    const CopyCurve curve = h200_device_to_host();
    // Slope of the first interval: 3500 ns for 192 KiB, so 512 bytes would take 2700 - 63.5 / 192 * 3500 = 1542 ns.
    EXPECT_NEAR(static_cast<double>(curve.time(512_B).count()), 1542, 2);
    EXPECT_EQ(curve.time(0_B), 0ns);
}

TEST(CopyCurve, RisesWithSizeEverywhere) {
    const CopyCurve curve = h200_device_to_host();
    Nanoseconds last = curve.time(1_B);
    for (std::int64_t size = 2; size < (std::int64_t{1} << 32); size *= 2) {
        EXPECT_GE(curve.time(Bytes{size}), last) << size;
        last = curve.time(Bytes{size});
    }
}

TEST(CopyCurve, RefusesTimesThatFall) {
    EXPECT_THROW(CopyCurve({{1_MiB, 20us}, {2_MiB, 10us}}), std::logic_error);
    EXPECT_THROW(CopyCurve({{1_MiB, 20us}}), std::logic_error);
}

}  // namespace
}  // namespace stowage::types
