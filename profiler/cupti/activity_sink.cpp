#include "profiler/cupti/activity_sink.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <utility>

namespace stowage::profiler {
namespace {

struct Installed {
    std::mutex mutex;
    std::shared_ptr<ActivitySink> sink;
    std::set<std::uint8_t*> given;  ///< to CUPTI, by whatever sink
};

/// Never destroyed: CUPTI's threads may come after the end of main.
Installed& installed() {
    static Installed* const one = new Installed;  // NOLINT(cppcoreguidelines-owning-memory): it stays
    return *one;
}

std::shared_ptr<ActivitySink> current_sink() {
    const std::scoped_lock lock(installed().mutex);
    return installed().sink;
}

/// Zeroed, so that its pages are there too.
RecordBuffer make_buffer() noexcept {
    return RecordBuffer(new (std::nothrow) std::uint8_t[ActivitySink::kBufferBytes]());
}

Decoded empty(RecordKinds keep) {
    Decoded decoded;
    decoded.keep = keep;
    return decoded;
}

/// No if it cannot be remembered: then CUPTI must not have it.
bool note_given(std::uint8_t* buffer) noexcept {
    try {
        const std::scoped_lock lock(installed().mutex);
        installed().given.insert(buffer);
        return true;
    } catch (...) {
        return false;
    }
}

}  // namespace

ActivitySink::ActivitySink(std::shared_ptr<CuptiApi> cupti, RecordKinds keep, std::size_t ahead)
    : cupti_(std::move(cupti)), keep_(keep), ahead_(ahead), decoded_(empty(keep)) {}

void ActivitySink::grow() noexcept {
    while (true) {
        {
            const std::scoped_lock lock(mutex_);
            if (spare_.size() >= ahead_) return;
        }
        RecordBuffer buffer = make_buffer();
        if (buffer == nullptr) return;
        try {
            const std::scoped_lock lock(mutex_);
            spare_.push_back(std::move(buffer));
        } catch (...) {
            return;
        }
    }
}

RecordBuffer ActivitySink::buffer() noexcept {
    {
        const std::scoped_lock lock(mutex_);
        if (!spare_.empty()) {
            RecordBuffer buffer = std::move(spare_.back());
            spare_.pop_back();
            return buffer;
        }
    }
    return make_buffer();
}

// CUPTI is written in C: nothing may be thrown through it. A buffer that could not be kept counts as a dropped record.
void ActivitySink::consume(CUcontext context, std::uint32_t stream, RecordBuffer buffer,
                           std::size_t valid_bytes) noexcept {
    try {
        read(context, stream, buffer.get(), valid_bytes);
        std::memset(buffer.get(), 0, kBufferBytes);  // all of it: records that were not complete may lie behind
        {
            const std::scoped_lock lock(mutex_);
            spare_.push_back(std::move(buffer));
        }
        grow();
    } catch (...) {
        const std::scoped_lock lock(mutex_);
        ++unread_;
    }
}

void ActivitySink::refuse() noexcept {
    const std::scoped_lock lock(mutex_);
    ++foreign_;
}

void ActivitySink::read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid_bytes) {
    Decoded decoded = empty(keep_);
    CUpti_Activity* record = nullptr;
    while (valid_bytes != 0 && cupti_->next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
        decode(*record, decoded);
    const std::pair whose(number_of(context), stream);
    const std::uint64_t dropped = dropped_of(context, stream);
    const std::scoped_lock lock(mutex_);
    append(decoded_, decoded);
    if (dropped > 0) dropped_[whose] += dropped;
    ++buffers_;
}

std::uint64_t ActivitySink::dropped_of(CUcontext context, std::uint32_t stream) {
    std::size_t dropped = 0;
    return cupti_->dropped_records(context, stream, &dropped) == CUPTI_SUCCESS ? dropped : 0;
}

std::uint32_t ActivitySink::number_of(CUcontext context) {
    std::uint32_t number = kNotApplicable;
    if (context == nullptr || cupti_->context_id(context, &number) != CUPTI_SUCCESS) return kNotApplicable;
    return number;
}

void ActivitySink::count_dropped() {
    const std::uint64_t dropped = dropped_of(nullptr, 0);
    if (dropped == 0) return;
    const std::scoped_lock lock(mutex_);
    dropped_[{kNotApplicable, 0}] += dropped;
}

std::uint32_t ActivitySink::name_of_call(const Call& call, NameTable& names) {
    const char* name = nullptr;
    const auto domain = call.api == CallApi::runtime ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
    if (cupti_->callback_name(domain, call.number, &name) == CUPTI_SUCCESS && name != nullptr)
        return names.index_of(name);
    const char* const prefix = call.api == CallApi::runtime ? "runtime call " : "driver call ";
    return names.index_of(prefix + std::to_string(call.number));
}

void ActivitySink::name_calls(Decoded& decoded) {
    std::map<std::pair<CallApi, std::uint32_t>, std::uint32_t> known;
    for (Call& call : decoded.calls) {
        const auto [entry, is_new] = known.try_emplace({call.api, call.number}, 0);
        if (is_new) entry->second = name_of_call(call, decoded.names);
        call.name = entry->second;
    }
}

Recording ActivitySink::take() {
    Decoded taken;
    Recording recording;
    {
        const std::scoped_lock lock(mutex_);
        taken = std::exchange(decoded_, empty(keep_));
        pairing_.add(taken.edges);
        recording.ranges = pairing_.take();
        pairing_.rename(taken.names, decoded_.names);
        for (const auto& [whose, records] : std::exchange(dropped_, {})) {
            recording.drops.push_back({whose.first, whose.second, records});
            recording.dropped += records;
        }
        if (const std::uint64_t unread = std::exchange(unread_, 0); unread > 0) {
            recording.drops.push_back({kNotApplicable, 0, unread});
            recording.dropped += unread;
        }
        recording.buffers = std::exchange(buffers_, 0);
        recording.foreign_buffers = std::exchange(foreign_, 0);
    }
    name_calls(taken);
    recording.untimed = taken.untimed;
    recording.names = taken.names.names();
    recording.calls = std::move(taken.calls);
    recording.allocations = std::move(taken.allocations);
    recording.pools = std::move(taken.pools);
    recording.events = std::move(taken.events);
    recording.waits = std::move(taken.waits);
    recording.marks = std::move(taken.marks);
    recording.activities = std::move(taken.activities);
    for (Activity& activity : recording.activities) {
        const auto found = taken.issued_under.find(activity.correlation);
        if (found != taken.issued_under.end()) activity.issued_under = found->second;
    }
    recording.missing_buffers = missing_buffers();
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

std::size_t missing_buffers() {
    const std::scoped_lock lock(installed().mutex);
    return installed().given.size();
}

void CUPTIAPI request_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    const std::shared_ptr<ActivitySink> sink = current_sink();
    RecordBuffer given;
    if (sink) given = sink->buffer();
    const bool usable = given != nullptr && note_given(given.get());
    *buffer = usable ? given.release() : nullptr;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): comes back
    *size = usable ? ActivitySink::kBufferBytes : 0;
    *most_records = 0;  // as many as fit
}

void CUPTIAPI complete_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t /*size*/,
                              std::size_t valid_bytes) {
    if (buffer == nullptr) return;
    bool ours = false;
    std::shared_ptr<ActivitySink> sink;
    {
        const std::scoped_lock lock(installed().mutex);
        ours = installed().given.erase(buffer) > 0;
        sink = installed().sink;
    }
    if (ours) {
        RecordBuffer owned(buffer);
        if (sink) sink->consume(context, stream, std::move(owned), valid_bytes);
    } else if (sink) {
        sink->refuse();
    }
}

}  // namespace stowage::profiler
