#include <cmath>

#include "executor/cuda/event.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "executor/workload/random.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

class Debug : public support::GpuTest {};

TEST_F(Debug, SpinsAtLeastAsLongAsAsked) {
    const Stream stream;
    const Event start(EventTiming::on);
    const Event end(EventTiming::on);
    start.record(stream.ref());
    kernels::spin(2000000, stream.get());
    end.record(stream.ref());
    end.synchronize();
    // The device's clock ticks in microseconds on some devices: 1 % below what was asked is its resolution.
    EXPECT_GE(elapsed(start.ref(), end.ref()).count(), 1980000);
}

TEST_F(Debug, PoisonIsNaNInEveryFloatingType) {
    const Buffer buffer = bf16_buffer(Values(33, 1.0F));
    kernels::poison(buffer.get(), 64, nullptr);
    const Values values = buffer.read_bf16();
    for (std::size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(values[i]));
    EXPECT_EQ(values[32], 1.0F);
}

// The definition of debug.hpp, computed on the host.
TEST_F(Debug, DigestIsTheSumOfHashedWords) {
    const std::int64_t bytes = 8 * 1000 + 3;
    std::vector<std::uint8_t> values;
    for (std::int64_t i = 0; i < bytes; ++i) values.push_back(static_cast<std::uint8_t>(i * 37 + 11));
    const Buffer buffer(bytes);
    buffer.write(values);
    std::uint64_t expected = 0;
    for (std::size_t word = 0; word <= 1000; ++word) {
        std::uint64_t whole = 0;
        for (std::size_t i = 0; i < 8 && 8 * word + i < values.size(); ++i) {
            whole |= static_cast<std::uint64_t>(values[8 * word + i]) << (8 * i);
        }
        expected += hash_of_word(whole, word);
    }
    EXPECT_EQ(buffer.digest(), expected);
    values[4000] ^= 1U;
    buffer.write(values);
    EXPECT_NE(buffer.digest(), expected) << "one bit";
}

TEST_F(Debug, FencesTellWhereAByteWasWritten) {
    const Buffer fence(4096);
    const Buffer report(sizeof(kernels::FenceReport));
    auto* on_device = static_cast<kernels::FenceReport*>(report.get());
    const auto found = [&] {
        kernels::clear_fence_report(on_device, nullptr);
        kernels::check_fence(fence.get(), 4096, on_device, nullptr);
        return report.read<kernels::FenceReport>().front();
    };
    kernels::fill_fence(fence.get(), 4096, nullptr);
    EXPECT_EQ(found().broken_bytes, 0U);
    auto bytes = fence.read<std::uint8_t>();
    bytes[1234] ^= 0x10U;
    bytes[4000] ^= 0x01U;
    fence.write(bytes);
    EXPECT_EQ(found().broken_bytes, 2U);
    EXPECT_EQ(found().first_offset, 1234U);
}

}  // namespace
}  // namespace stowage::executor
