#include "profiler/calibrate/probe_kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <thread>
#include <vector>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "executor/cuda/stream.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using executor::DeviceBuffer;
using types::Bytes;

class ProbeKernels : public support::GpuTest {
protected:
    template <class Element>
    static DeviceBuffer on_device(const std::vector<Element>& values) {
        DeviceBuffer buffer(Bytes{static_cast<std::int64_t>(values.size() * sizeof(Element))});
        check(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(Element), cudaMemcpyHostToDevice),
              "writing");
        return buffer;
    }
    template <class Element>
    static std::vector<Element> read(const DeviceBuffer& buffer, std::size_t count) {
        check(cudaDeviceSynchronize(), "waiting for a kernel");
        std::vector<Element> values(count);
        check(cudaMemcpy(values.data(), buffer.data(), count * sizeof(Element), cudaMemcpyDeviceToHost), "reading");
        return values;
    }
};

// A length that fills no whole block: 1000 vectors and one more.
TEST_F(ProbeKernels, CopiesEveryVector) {
    std::vector<std::uint32_t> values(4 * 1001);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * 2654435761U);
    const DeviceBuffer source = on_device(values);
    const DeviceBuffer destination = on_device(std::vector<std::uint32_t>(values.size() + 4, 7));
    vector_copy(source.data(), destination.data(), 16 * 1001, nullptr);
    const auto copied = read<std::uint32_t>(destination, values.size() + 4);
    EXPECT_EQ(std::vector<std::uint32_t>(copied.begin(), copied.end() - 4), values);
    EXPECT_EQ(copied.back(), 7U) << "nothing behind the end is written";
}

TEST_F(ProbeKernels, GathersEveryThirdRun) {
    std::vector<std::uint16_t> values(5 * kRunDistance);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i);
    const DeviceBuffer source = on_device(values);
    const DeviceBuffer destination = on_device(std::vector<std::uint16_t>(5 * kRunLength, 0));
    strided_copy(source.data(), destination.data(), 5 * kRunLength, nullptr);
    const auto gathered = read<std::uint16_t>(destination, 5 * kRunLength);
    for (std::size_t i = 0; i < gathered.size(); ++i) ASSERT_EQ(gathered[i], i / 128 * 384 + i % 128) << i;
}

// Neither NaN (0x7f, 0xff) nor all alike: power depends on what is multiplied.
TEST_F(ProbeKernels, FillsWithNumbers) {
    const DeviceBuffer buffer(Bytes{100'000});
    fill_fp8(buffer.data(), 100'000, nullptr);
    std::vector<int> count(256);
    for (const auto byte : read<std::uint8_t>(buffer, 100'000)) ++count[byte];
    EXPECT_EQ(count[0x7f] + count[0xff], 0);
    EXPECT_GT(std::count_if(count.begin(), count.end(), [](int one) { return one > 0; }), 80);
    EXPECT_LT(*std::max_element(count.begin(), count.end()), 10'000);
}

TEST_F(ProbeKernels, HoldsAStreamUntilItIsToldToGo) {
    executor::PinnedBuffer flag(Bytes{4096});
    auto* const on_host = reinterpret_cast<volatile int*>(flag.data());
    *on_host = 0;
    void* on_device = nullptr;
    check(cudaHostGetDevicePointer(&on_device, flag.data(), 0), "looking for a flag's place");
    const executor::Stream stream;
    hold(static_cast<const int*>(on_device), stream.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(stream.ref().is_idle());
    *on_host = 1;
    stream.synchronize("waiting for a stream that was held");
    EXPECT_TRUE(stream.ref().is_idle());
}

}  // namespace
}  // namespace stowage::calibrate
