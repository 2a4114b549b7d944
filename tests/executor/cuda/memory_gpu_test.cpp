#include <cstring>
#include <iostream>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;

template <class Buffer>
std::string failure_of(types::Bytes size) {
    try {
        const Buffer buffer(size);
    } catch (const DeviceError& error) {
        return error.what();
    }
    return "";
}

class Memory : public support::GpuTest {};

TEST_F(Memory, OfTheDeviceMovesWithItsOwner) {
    DeviceBuffer from(3_MiB);
    const std::byte* const data = from.data();
    const DeviceBuffer to = std::move(from);
    EXPECT_EQ(to.data(), data);
    EXPECT_EQ(to.size(), 3_MiB);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): what a move leaves is promised
    EXPECT_EQ(from.data(), nullptr);
    // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
    EXPECT_EQ(from.size(), 0_B);
}

TEST_F(Memory, OfNoBytesIsEmpty) {
    EXPECT_EQ(DeviceBuffer(0_B).data(), nullptr);
    EXPECT_EQ(PinnedBuffer(0_B).data(), nullptr);
}

// 16 TiB are more than any device has: 16,777,216 MiB.
TEST_F(Memory, OfTheDeviceThatIsNotThereIsAnErrorWithBothAmounts) {
    const std::string failure = failure_of<DeviceBuffer>(types::Bytes{16LL << 40});
    std::cout << failure << "\n";
    EXPECT_NE(failure.find("cudaErrorMemoryAllocation: out of memory, while allocating device memory, on device "),
              std::string::npos);
    EXPECT_NE(failure.find("asked for 16777216.0 MiB, free "), std::string::npos);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a later launch would be blamed for it";
    EXPECT_NE(DeviceBuffer(1_MiB).data(), nullptr);
}

// 2^50 bytes are more than a process can address.
TEST_F(Memory, OfTheHostThatIsNotThereIsAnErrorWithBothAmounts) {
    const std::string failure = failure_of<PinnedBuffer>(types::Bytes{1LL << 50});
    std::cout << failure << "\n";
    EXPECT_NE(failure.find("while allocating pinned host memory, on device "), std::string::npos);
    EXPECT_NE(failure.find("asked for 1073741824.0 MiB of pinned memory, the host has "), std::string::npos);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "a later launch would be blamed for it";
}

TEST_F(Memory, PinnedIsZeroAndSaysWhereItLies) {
    const PinnedBuffer buffer(2_MiB);
    std::cout << "pinned: " << buffer.placement() << "\n";
    EXPECT_NE(buffer.placement(), "");
    EXPECT_EQ(std::memcmp(buffer.data(), buffer.data() + 1, (2U << 20) - 1), 0);
    EXPECT_EQ(std::to_integer<int>(buffer.data()[0]), 0);
    EXPECT_EQ(PinnedBuffer(1_MiB, PinnedPlacement::anywhere).placement(), "anywhere");
}

TEST_F(Memory, GoesToTheDeviceAndBackUnchanged) {
    const PinnedBuffer there(1_MiB);
    const PinnedBuffer back(1_MiB);
    const DeviceBuffer device(1_MiB);
    for (std::size_t index = 0; index < (1U << 20); ++index) there.data()[index] = static_cast<std::byte>(index % 251);
    ASSERT_EQ(cudaMemcpy(device.data(), there.data(), 1U << 20, cudaMemcpyHostToDevice), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(back.data(), device.data(), 1U << 20, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(std::memcmp(there.data(), back.data(), 1U << 20), 0);
}

}  // namespace
}  // namespace stowage::executor
