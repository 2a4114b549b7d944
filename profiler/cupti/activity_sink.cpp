#include "profiler/cupti/activity_sink.hpp"

#include <new>
#include <utility>

namespace stowage::profiler {
namespace {

struct Installed {
    std::mutex mutex;
    std::shared_ptr<ActivitySink> sink;
};

Installed& installed() {
    static Installed one;
    return one;
}

std::shared_ptr<ActivitySink> current_sink() {
    const std::scoped_lock lock(installed().mutex);
    return installed().sink;
}

}  // namespace

RecordBuffer ActivitySink::buffer() noexcept {
    {
        const std::scoped_lock lock(mutex_);
        if (!spare_.empty()) {
            RecordBuffer buffer = std::move(spare_.back());
            spare_.pop_back();
            return buffer;
        }
    }
    return RecordBuffer(new (std::nothrow) std::uint8_t[kBufferBytes]);
}

// CUPTI is written in C: nothing may be thrown through it. A buffer that could not be kept counts as a dropped record.
void ActivitySink::consume(RecordBuffer buffer, std::size_t valid_bytes) noexcept {
    try {
        read(buffer.get(), valid_bytes);
        const std::scoped_lock lock(mutex_);
        spare_.push_back(std::move(buffer));
    } catch (...) {
        const std::scoped_lock lock(mutex_);
        ++dropped_;
    }
}

void ActivitySink::read(std::uint8_t* buffer, std::size_t valid_bytes) {
    Decoded decoded;
    CUpti_Activity* record = nullptr;
    while (valid_bytes != 0 && cupti_->next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
        decode(*record, decoded);
    std::size_t dropped = 0;
    if (cupti_->dropped_records(&dropped) != CUPTI_SUCCESS) dropped = 0;
    const std::scoped_lock lock(mutex_);
    append(decoded_, decoded);
    dropped_ += dropped;
    ++buffers_;
}

Recording ActivitySink::take() {
    Decoded taken;
    Recording recording;
    {
        const std::scoped_lock lock(mutex_);
        taken = std::exchange(decoded_, Decoded{});
        recording.dropped = std::exchange(dropped_, 0);
        recording.buffers = std::exchange(buffers_, 0);
    }
    recording.untimed = taken.untimed;
    recording.names = taken.names.names();
    recording.activities = std::move(taken.activities);
    for (Activity& activity : recording.activities) {
        const auto found = taken.issued_under.find(activity.correlation);
        if (found != taken.issued_under.end()) activity.issued_under = found->second;
    }
    return recording;
}

bool install_sink(std::shared_ptr<ActivitySink> sink) {
    const std::scoped_lock lock(installed().mutex);
    if (installed().sink) return false;
    installed().sink = std::move(sink);
    return true;
}

void remove_sink() {
    const std::scoped_lock lock(installed().mutex);
    installed().sink.reset();
}

void CUPTIAPI request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    const std::shared_ptr<ActivitySink> sink = current_sink();
    *buffer = sink ? sink->buffer().release() : nullptr;
    *size = *buffer == nullptr ? 0 : ActivitySink::kBufferBytes;
    *most_records = 0;  // as many as fit
}

void CUPTIAPI complete_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                              std::size_t /*size*/, std::size_t valid_bytes) {
    RecordBuffer owned(buffer);
    if (owned == nullptr) return;
    if (const std::shared_ptr<ActivitySink> sink = current_sink()) sink->consume(std::move(owned), valid_bytes);
}

}  // namespace stowage::profiler
