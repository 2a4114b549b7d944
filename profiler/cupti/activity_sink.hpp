#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "profiler/cupti/cupti_api.hpp"
#include "profiler/cupti/decode.hpp"
#include "profiler/cupti/range_pairing.hpp"

namespace stowage::profiler {

/// A buffer that CUPTI writes records into.
using RecordBuffer = std::unique_ptr<std::uint8_t[]>;  // NOLINT(modernize-avoid-c-arrays): CUPTI wants bytes

/// Takes the buffers that CUPTI has filled, on whatever thread it fills them, and turns their records into ours.
///
/// CUPTI asks for a buffer on the thread whose call made the record, often that of the training loop: so some lie
/// ready, zeroed and with their pages there, and are made ready again where they are read, on CUPTI's own thread. Each
/// thread of the process fills one of its own.
class ActivitySink {
public:
    static constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

    ActivitySink(std::shared_ptr<CuptiApi> cupti, RecordKinds keep, std::size_t ahead);

    /// Has so many buffers lie ready as were asked for, if there is memory.
    void grow() noexcept;
    /// An empty buffer; null if there is no memory for one.
    RecordBuffer buffer() noexcept;
    /// Reads what a buffer holds and keeps the buffer for later.
    void consume(CUcontext context, std::uint32_t stream, RecordBuffer buffer, std::size_t valid_bytes) noexcept;
    /// A buffer came that nobody here gave.
    void refuse() noexcept;
    /// Asks CUPTI what it dropped of no particular context: it says so with buffers, of which there may be none.
    void count_dropped();
    /// Everything since the last take, with each activity's operation. Without what is known of nodes.
    [[nodiscard]] Recording take();

private:
    void read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid_bytes);
    [[nodiscard]] std::uint64_t dropped_of(CUcontext context, std::uint32_t stream);
    [[nodiscard]] std::uint32_t number_of(CUcontext context);
    void name_calls(Decoded& decoded);
    [[nodiscard]] std::uint32_t name_of_call(const Call& call, NameTable& names);

    std::shared_ptr<CuptiApi> cupti_;
    const RecordKinds keep_;
    const std::size_t ahead_;
    std::mutex mutex_;
    std::vector<RecordBuffer> spare_;
    Decoded decoded_;
    RangePairing pairing_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> dropped_;  ///< by context and stream
    std::uint64_t buffers_ = 0;
    std::uint64_t unread_ = 0;  ///< buffers that there was no memory to read
    std::uint64_t foreign_ = 0;
};

/// CUPTI's calls for buffers carry nothing of ours, so there is one sink in a process that they go to.
/// Result: no, and nothing changes, if there is one already.
bool install_sink(std::shared_ptr<ActivitySink> sink);
void remove_sink();
/// Buffers that CUPTI has been given and has not given back.
std::size_t missing_buffers();
/// What CUPTI calls. Buffers that come when there is no sink are thrown away; those that were not asked of us are left
/// alone, since whoever took CUPTI over will free them.
void CUPTIAPI request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records);
void CUPTIAPI complete_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t size,
                              std::size_t valid_bytes);

}  // namespace stowage::profiler
