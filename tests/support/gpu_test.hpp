#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "executor/cuda/device.hpp"

namespace stowage::support {

/// A test that needs a device: skipped with the reason where there is none, failed with it where STOWAGE_REQUIRE_GPU=1
/// says that there has to be one.
class GpuTest : public testing::Test {
protected:
    void SetUp() override {
        const std::optional<std::string> reason = executor::no_device_reason();
        if (!reason) return;
        const char* required = std::getenv("STOWAGE_REQUIRE_GPU");
        if (required != nullptr && std::string(required) == "1") FAIL() << "STOWAGE_REQUIRE_GPU=1, but " << *reason;
        GTEST_SKIP() << *reason;
    }
};

}  // namespace stowage::support
