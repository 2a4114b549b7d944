#include "executor/cuda/device_error.hpp"

#include <gtest/gtest.h>

namespace stowage::executor {
namespace {

TEST(DeviceError, ExitsWithFive) {
    const DeviceError error("no room");
    EXPECT_EQ(static_cast<int>(error.code()), 5);
    EXPECT_STREQ(error.what(), "no room");
}

}  // namespace
}  // namespace stowage::executor
