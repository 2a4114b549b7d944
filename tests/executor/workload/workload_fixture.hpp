#pragma once

// For tests of calls on a device: host values up, one call, host values down. References are computed on the host in
// double from the very bf16 values that the device gets.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "executor/cuda/check.hpp"
#include "executor/cuda/stream.hpp"
#include "executor/workload/device_memory.hpp"
#include "executor/workload/workload.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {

using Values = std::vector<float>;

/// Rounded to the nearest bf16, ties to even.
float round_to_bf16(float value);
std::vector<std::uint16_t> bits_of(const Values& values);
Values values_of(const std::vector<std::uint16_t>& bits);

/// Uniform with variance `scale` squared, each exactly a bf16.
Values random_values(std::int64_t count, std::uint64_t seed, float scale = 1.0F);

/// Device memory that knows its size.
class Buffer {
public:
    explicit Buffer(std::int64_t bytes);
    [[nodiscard]] void* get() const { return memory_.get(); }
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }

    /// There when it returns: cudaMemcpy of pageable memory may come back before its last bytes have arrived, and
    /// streams that do not block are not held up by it.
    template <class Element>
    void write(const std::vector<Element>& from) const {
        check(cudaMemcpy(get(), from.data(), from.size() * sizeof(Element), cudaMemcpyHostToDevice), "writing");
        check(cudaDeviceSynchronize(), "writing");
    }
    template <class Element>
    [[nodiscard]] std::vector<Element> read() const {
        std::vector<Element> to(static_cast<std::size_t>(bytes_) / sizeof(Element));
        check(cudaMemcpy(to.data(), get(), to.size() * sizeof(Element), cudaMemcpyDeviceToHost), "reading");
        return to;
    }
    [[nodiscard]] Values read_bf16() const { return values_of(read<std::uint16_t>()); }
    /// Of main gradients, in either type.
    [[nodiscard]] Values read_as(types::DataType type) const;
    [[nodiscard]] std::uint64_t digest() const;

private:
    std::int64_t bytes_;
    DeviceMemory memory_;
};

Buffer bf16_buffer(const Values& values);
Buffer fp32_buffer(const Values& values);
Buffer int_buffer(const std::vector<std::int32_t>& values);
Buffer gradient_buffer(const Values& values, types::DataType type);
/// Filled with NaN, so that what a kernel leaves out shows.
Buffer empty_bf16(std::int64_t count);
Buffer empty_fp32(std::int64_t count);

/// |actual - expected| <= relative |expected| + absolute, everywhere. Half a unit of bf16 is 2^-9 of the value; 2^-8
/// leaves as much again for fp32 arithmetic in another order.
void expect_close(const Values& actual, const std::vector<double>& expected, double relative = 1.0 / 256,
                  double absolute = 1e-3);

class WorkloadGpu : public support::GpuTest {
protected:
    void SetUp() override;
    /// Prepares and launches one call and waits for it.
    void run(layers::Call call, const layers::CallSizes& sizes, const std::vector<const Buffer*>& buffers,
             const LaunchPlace& place = {});
    [[nodiscard]] Workload& workload() { return *workload_; }
    [[nodiscard]] const Stream& stream() const { return *stream_; }

private:
    std::optional<Workload> workload_;
    std::optional<Stream> stream_;
};

}  // namespace stowage::executor
