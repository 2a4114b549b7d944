#include "executor/cuda/device_monitor.hpp"

#include <gtest/gtest.h>

namespace stowage::executor {
namespace {

// NVML's bits: 1 idle, 4 software power cap, 8 hardware slowdown.
TEST(ThrottleNames, NamesEachBit) {
    EXPECT_EQ(throttle_names(0), std::vector<std::string>{});
    EXPECT_EQ(throttle_names(0x1 | 0x4 | 0x8), (std::vector<std::string>{"gpu_idle", "sw_power_cap", "hw_slowdown"}));
}

TEST(ThrottleNames, CountsABitThatItDoesNotKnow) {
    EXPECT_EQ(throttle_names(1ULL << 20), std::vector<std::string>{"bit_20"});
}

TEST(DeviceMonitor, SaysWhyIfThereIsNothingToAsk) {
    const DeviceMonitor monitor("no:such:device");
    EXPECT_NE(monitor.absence(), "");
    EXPECT_FALSE(monitor.read().sm_clock_mhz.has_value());
}

}  // namespace
}  // namespace stowage::executor
