#include "tests/executor/workload/workload_fixture.hpp"

#include <bit>
#include <cmath>

#include "executor/workload/kernels/debug.hpp"
#include "executor/workload/random.hpp"

namespace stowage::executor {
namespace {

std::uint16_t bf16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t to_even = 0x7fffU + ((bits >> 16) & 1U);
    return static_cast<std::uint16_t>((bits + to_even) >> 16);
}

float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

Buffer poisoned(std::int64_t bytes) {
    Buffer buffer(bytes);
    check(cudaMemset(buffer.get(), 0xff, static_cast<std::size_t>(bytes)), "poisoning");
    return buffer;
}

template <class Element>
Buffer buffer_of(const std::vector<Element>& values) {
    Buffer buffer(static_cast<std::int64_t>(values.size() * sizeof(Element)));
    buffer.write(values);
    return buffer;
}

}  // namespace

float round_to_bf16(float value) { return bf16_value(bf16_bits(value)); }

std::vector<std::uint16_t> bits_of(const Values& values) {
    std::vector<std::uint16_t> bits;
    bits.reserve(values.size());
    for (const float value : values) bits.push_back(bf16_bits(value));
    return bits;
}

Values values_of(const std::vector<std::uint16_t>& bits) {
    Values values;
    values.reserve(bits.size());
    for (const std::uint16_t one : bits) values.push_back(bf16_value(one));
    return values;
}

Values random_values(std::int64_t count, std::uint64_t seed, float scale) {
    Values values;
    const std::uint64_t key = stream_key(seed, 0, 0);
    for (std::int64_t i = 0; i < count; ++i) {
        values.push_back(round_to_bf16(scale * random_hidden(key, static_cast<std::uint64_t>(i))));
    }
    return values;
}

Buffer::Buffer(std::int64_t bytes) : bytes_(bytes), memory_(allocate_on_device(bytes, "allocating for a test")) {}

Values Buffer::read_as(types::DataType type) const {
    return type == types::DataType::fp32 ? read<float>() : read_bf16();
}

std::uint64_t Buffer::digest() const {
    const Buffer result(sizeof(std::uint64_t));
    kernels::digest(get(), bytes_, static_cast<std::uint64_t*>(result.get()), nullptr);
    check(cudaDeviceSynchronize(), "waiting for a digest");
    return result.read<std::uint64_t>().front();
}

Buffer bf16_buffer(const Values& values) { return buffer_of(bits_of(values)); }
Buffer fp32_buffer(const Values& values) { return buffer_of(values); }
Buffer int_buffer(const std::vector<std::int32_t>& values) { return buffer_of(values); }
Buffer gradient_buffer(const Values& values, types::DataType type) {
    return type == types::DataType::fp32 ? fp32_buffer(values) : bf16_buffer(values);
}
Buffer empty_bf16(std::int64_t count) { return poisoned(2 * count); }
Buffer empty_fp32(std::int64_t count) { return poisoned(4 * count); }

void expect_close(const Values& actual, const std::vector<double>& expected, double relative, double absolute) {
    ASSERT_EQ(actual.size(), expected.size());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
        if (difference <= relative * std::abs(expected[i]) + absolute) continue;  // a NaN is not
        if (++wrong <= 3) ADD_FAILURE() << "element " << i << ": " << actual[i] << ", expected " << expected[i];
    }
    EXPECT_EQ(wrong, 0U) << "elements are wrong, of " << actual.size();
}

void WorkloadGpu::SetUp() {
    support::GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    workload_.emplace(WorkloadOptions{.device = 0, .gemm_table = {}, .seed = 7});
    stream_.emplace();
}

void WorkloadGpu::run(layers::Call call, const layers::CallSizes& sizes, const std::vector<const Buffer*>& buffers,
                      const LaunchPlace& place) {
    const CallShape shape{call, sizes};
    workload_->prepare({&shape, 1});
    std::vector<void*> pointers;
    for (const Buffer* buffer : buffers) pointers.push_back(buffer->get());
    check(cudaDeviceSynchronize(), "waiting for what a test wrote");
    workload_->launch(call, sizes, pointers, stream_->get(), place);
    stream_->synchronize("waiting for the call of a test");
}

}  // namespace stowage::executor
