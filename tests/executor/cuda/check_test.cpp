#include "executor/cuda/check.hpp"

#include <gtest/gtest.h>

#include <regex>

#include "executor/cuda/device.hpp"
#include "executor/cuda/device_arena.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;

std::string message_of(cudaError_t code) {
    try {
        check(code, "making a test");
    } catch (const DeviceError& error) {
        return error.what();
    }
    return "";
}

TEST(Check, LetsSuccessPass) { EXPECT_EQ(message_of(cudaSuccess), ""); }

// The device is that of the machine that runs this, or none.
TEST(Check, SaysWhatFailedWhileDoingWhatOnWhichDeviceAndWhere) {
    const std::regex expected(
        R"(cudaErrorMemoryAllocation: out of memory, while making a test, on (no usable device|device \d+.*) )"
        R"(\(tests/executor/cuda/check_test\.cpp:\d+\))");
    EXPECT_TRUE(std::regex_match(message_of(cudaErrorMemoryAllocation), expected))
        << message_of(cudaErrorMemoryAllocation);
}

TEST(Check, PutsADetailBeforeThePlace) {
    const std::string message =
        failure_message(cudaErrorMemoryAllocation, "making a test", std::source_location::current(), "asked for much");
    EXPECT_NE(message.find("; asked for much (tests/executor/cuda/check_test.cpp:"), std::string::npos) << message;
}

TEST(Check, SaysOfMemoryWhatWasAskedForAndWhatThereIs) {
    EXPECT_EQ(device_shortage(2_GiB, {.free = 100_MiB, .total = 1_GiB}),
              "asked for 2048.0 MiB, free 100.0 MiB of 1024.0 MiB");
}

TEST(ReleaseFailure, IsSilentWhenAllIsWellOrTheRuntimeIsGone) {
    EXPECT_EQ(release_failure(cudaSuccess, "a stream"), std::nullopt);
    EXPECT_EQ(release_failure(cudaErrorCudartUnloading, "a stream"), std::nullopt);
}

TEST(ReleaseFailure, NamesWhatWasBeingReleased) {
    EXPECT_EQ(
        release_failure(cudaErrorInvalidResourceHandle, "a stream"),
        "cudaErrorInvalidResourceHandle: invalid resource handle, while releasing a stream; later failures of this "
        "kind are not reported");
}

TEST(CudaVersion, IsWrittenAsNvidiaWritesIt) {
    EXPECT_EQ(cuda_version_text(13000), "13.0");
    EXPECT_EQ(cuda_version_text(12090), "12.9");
}

TEST(NoDeviceReason, NeverThrowsAndSaysSomethingIfAnything) {
    const std::optional<std::string> reason = no_device_reason();
    EXPECT_TRUE(!reason || !reason->empty());
}

}  // namespace
}  // namespace stowage::executor
