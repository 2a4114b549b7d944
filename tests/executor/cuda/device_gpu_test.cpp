#include "executor/cuda/device.hpp"

#include <array>
#include <iostream>
#include <vector>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_monitor.hpp"
#include "executor/cuda/stream.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {
namespace {

class Device : public support::GpuTest {};

TEST_F(Device, IsDescribed) {
    const DeviceInfo info = current_device();
    std::cout << info.name << ", " << info.major << "." << info.minor << ", " << info.multiprocessors << " SMs, "
              << info.copy_engines << " copy engines, " << types::in_gib(info.total_memory) << " GiB ("
              << types::in_gib(info.free_memory) << " free), driver " << cuda_version_text(info.driver_version)
              << ", runtime " << cuda_version_text(info.runtime_version) << ", " << info.pci_bus_id << "\n";
    EXPECT_FALSE(info.name.empty());
    EXPECT_GE(info.major, kOldestMajor);
    EXPECT_GT(info.multiprocessors, 0);
    EXPECT_GT(info.l2_cache.count, 0);
    EXPECT_GT(info.free_memory.count, 0);
    EXPECT_LT(info.free_memory, info.total_memory);
    EXPECT_GE(info.driver_version, info.runtime_version / 1000 * 1000);  // the same major version, or newer
    EXPECT_NE(current_device_text().find("(" + info.name + ")"), std::string::npos) << current_device_text();
}

// Without the management library this says why; with it, a device that is on has a clock and draws power.
TEST_F(Device, TellsItsClocksAndPowerOrWhyNot) {
    const DeviceMonitor monitor(current_device().pci_bus_id);
    if (!monitor.absence().empty()) {
        std::cout << monitor.absence() << "\n";
        return;
    }
    const DeviceState state = monitor.read();
    ASSERT_TRUE(state.sm_clock_mhz && state.power_watts && state.throttle_reasons);
    std::cout << *state.sm_clock_mhz << " MHz, memory " << state.memory_clock_mhz.value_or(0) << " MHz, "
              << *state.power_watts << " W of " << state.power_limit_watts.value_or(0) << ", "
              << state.temperature_celsius.value_or(0) << " C\n";
    EXPECT_GT(*state.sm_clock_mhz, 0U);
    EXPECT_GT(*state.power_watts, 0);
}

class StreamOwner : public support::GpuTest {};

TEST_F(StreamOwner, KeepsItsStreamThroughAMove) {
    Stream from;
    cudaStream_t handle = from.get();
    const Stream to = std::move(from);
    EXPECT_EQ(to.get(), handle);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what a move leaves is promised
    EXPECT_EQ(from.get(), nullptr);
    to.synchronize();
    EXPECT_TRUE(to.ref().is_idle());
}

// In CUDA a smaller number is a higher priority.
TEST_F(StreamOwner, OfHighPriorityGoesBeforeANormalOne) {
    const Stream normal;
    const Stream high(StreamPriority::high);
    int of_normal = 0;
    int of_high = 0;
    ASSERT_EQ(cudaStreamGetPriority(normal.get(), &of_normal), cudaSuccess);
    ASSERT_EQ(cudaStreamGetPriority(high.get(), &of_high), cudaSuccess);
    EXPECT_LT(of_high, of_normal);
}

TEST_F(StreamOwner, DoesNotWaitForTheDefaultStream) {
    const Stream stream;
    unsigned flags = 0;
    ASSERT_EQ(cudaStreamGetFlags(stream.get(), &flags), cudaSuccess);
    EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
}

}  // namespace
}  // namespace stowage::executor
