#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "profiler/cupti/cupti_api.hpp"
#include "profiler/cupti/decode.hpp"

namespace stowage::profiler {

/// A buffer that CUPTI writes records into.
using RecordBuffer = std::unique_ptr<std::uint8_t[]>;  // NOLINT(modernize-avoid-c-arrays): CUPTI wants bytes

/// Takes the buffers that CUPTI has filled, on whatever thread it fills them, and turns their records into ours.
class ActivitySink {
public:
    static constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

    explicit ActivitySink(std::shared_ptr<CuptiApi> cupti) : cupti_(std::move(cupti)) {}

    /// An empty buffer; null if there is no memory for one.
    RecordBuffer buffer() noexcept;
    /// Reads what a buffer holds and keeps the buffer for later.
    void consume(RecordBuffer buffer, std::size_t valid_bytes) noexcept;
    /// Everything since the last take, with each activity's operation. Without what is known of nodes.
    [[nodiscard]] Recording take();

private:
    void read(std::uint8_t* buffer, std::size_t valid_bytes);

    std::shared_ptr<CuptiApi> cupti_;
    std::mutex mutex_;
    std::vector<RecordBuffer> spare_;
    Decoded decoded_;
    std::uint64_t dropped_ = 0;
    std::uint64_t buffers_ = 0;
};

/// CUPTI's calls for buffers carry nothing of ours, so there is one sink in a process that they go to.
/// Result: no, and nothing changes, if there is one already.
bool install_sink(std::shared_ptr<ActivitySink> sink);
void remove_sink();
/// What CUPTI calls. Buffers that come when there is no sink are thrown away.
void CUPTIAPI request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records);
void CUPTIAPI complete_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                              std::size_t valid_bytes);

}  // namespace stowage::profiler
