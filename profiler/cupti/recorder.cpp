#include "profiler/cupti/recorder.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "profiler/cupti/activity_sink.hpp"
#include "profiler/cupti/cupti_kinds.hpp"
#include "profiler/cupti/expect.hpp"
#include "profiler/cupti/node_tracker.hpp"
#include "profiler/cupti/nvtx_message.hpp"
#include "profiler/cupti/subscription.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::profiler {
namespace {

/// The one place in a process that CUPTI's buffers go to.
class SinkPlace {
public:
    explicit SinkPlace(const std::shared_ptr<ActivitySink>& sink) {
        STOWAGE_CHECK(install_sink(sink), "one recorder at a time");
    }
    SinkPlace(const SinkPlace&) = delete;
    SinkPlace& operator=(const SinkPlace&) = delete;
    SinkPlace(SinkPlace&&) = delete;
    SinkPlace& operator=(SinkPlace&&) = delete;
    ~SinkPlace() { remove_sink(); }
};

/// Threads have the system's numbers and buffers come zeroed as long as it lives. Where CUPTI refuses either, it does
/// as it always does.
class Settings {
public:
    explicit Settings(CuptiApi& cupti) : cupti_(cupti) {
        if (cupti.thread_id_type(&thread_ids_) != CUPTI_SUCCESS) thread_ids_ = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
        static_cast<void>(cupti.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
        static_cast<void>(cupti.promise_zeroed_buffers(true));
    }
    Settings(const Settings&) = delete;
    Settings& operator=(const Settings&) = delete;
    Settings(Settings&&) = delete;
    Settings& operator=(Settings&&) = delete;
    ~Settings() {
        static_cast<void>(cupti_.promise_zeroed_buffers(false));
        static_cast<void>(cupti_.set_thread_id_type(thread_ids_));
    }

private:
    CuptiApi& cupti_;
    CUpti_ActivityThreadIdType thread_ids_ = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
};

/// The last thing to be undone but for the sink.
class Presence {
public:
    Presence(CuptiApi& cupti, bool detach) : cupti_(cupti), detach_(detach) {}
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;
    Presence(Presence&&) = delete;
    Presence& operator=(Presence&&) = delete;
    ~Presence() {
        if (detach_) static_cast<void>(cupti_.finalize());
    }

private:
    CuptiApi& cupti_;
    bool detach_;
};

/// Whether every wait of the host leaves a record.
bool records_waits(RecordKinds kinds) {
    return kinds.has(RecordKind::synchronizations) || kinds.has(RecordKind::driver_calls);
}

std::shared_ptr<CuptiApi> usable(std::shared_ptr<CuptiApi> cupti) {
    expect_version(*cupti);
    return cupti;
}

}  // namespace

class ActivityRecorder::Implementation {
public:
    Implementation(std::shared_ptr<CuptiApi> cupti, RecorderOptions options)
        : options_(std::move(options)),
          kinds_(cupti_kinds(options_.kinds)),
          cupti_(usable(std::move(cupti))),
          sink_(std::make_shared<ActivitySink>(cupti_, options_.kinds, options_.buffers_ahead)),
          tracker_(*cupti_, options_.kinds.has(RecordKind::graph_nodes)),
          place_(sink_),
          presence_(*cupti_, options_.detach),
          settings_(*cupti_),
          subscription_(*cupti_, notice, this) {
        subscribe_to_all();
        expect(*cupti_, cupti_->register_buffers(request_buffer, complete_buffer), "cuptiActivityRegisterCallbacks");
    }
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;
    Implementation(Implementation&&) = delete;
    Implementation& operator=(Implementation&&) = delete;
    ~Implementation() {
        pause();
        static_cast<void>(cupti_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    }

    void start() {
        sink_->grow();
        State expected = State::off;
        if (!state_.compare_exchange_strong(expected, State::switching)) return;
        for (std::size_t i = 0; i < kinds_.size(); ++i) {
            const CUptiResult result = cupti_->enable(kinds_[i]);
            if (result == CUPTI_SUCCESS) continue;
            disable(i + 1);  // with the one that failed
            state_ = State::off;
            expect(*cupti_, result, "cuptiActivityEnable");
        }
        state_ = State::on;
    }

    void pause() noexcept {
        State expected = State::on;
        if (!state_.compare_exchange_strong(expected, State::switching)) return;
        disable(kinds_.size());
        state_ = State::off;
    }

    /// Forced: otherwise a buffer with one record that is not complete, as that of a call, would stay.
    void flush() {
        expect(*cupti_, cupti_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
        sink_->count_dropped();
    }

    void stop() {
        flush();
        pause();
    }

    void push(OperationNumber operation) {
        expect(*cupti_, cupti_->push_external_id(operation), "cuptiActivityPushExternalCorrelationId");
        tracker_.push(operation);
    }

    void pop() {
        STOWAGE_CHECK(tracker_.pop(), "what is popped was pushed on this thread");
        expect(*cupti_, cupti_->pop_external_id(), "cuptiActivityPopExternalCorrelationId");
    }

    Recording take() {
        Recording recording = sink_->take();
        recording.node_operations = tracker_.operations();
        recording.nodes = tracker_.nodes();
        recording.last_wait = types::Nanoseconds(last_wait_.load());
        return recording;
    }

    types::Nanoseconds now() {
        std::uint64_t nanoseconds = 0;
        expect(*cupti_, cupti_->timestamp(&nanoseconds), "cuptiGetTimestamp");
        return types::Nanoseconds(static_cast<std::int64_t>(nanoseconds));
    }

private:
    /// No lock is held while kinds are switched, since CUPTI may be inside a callback of ours on another thread; who
    /// comes meanwhile does nothing.
    enum class State { off, switching, on };

    static void CUPTIAPI notice(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
        try {
            static_cast<Implementation*>(self)->notice(domain, id, data);
        } catch (...) {  // no memory: the node stays unknown, and its activities are counted as unmatched
            std::fputs("warning: a callback of CUPTI could not be handled\n", stderr);
        }
    }

    void notice(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
        switch (domain) {
            case CUPTI_CB_DOMAIN_RESOURCE: tracker_.notice(domain, id, data); break;
            case CUPTI_CB_DOMAIN_SYNCHRONIZE: note_wait(); break;
            case CUPTI_CB_DOMAIN_NVTX:
                if (data != nullptr) options_.on_nvtx(message_of(id, *static_cast<const CUpti_NvtxData*>(data)));
                break;
            default: break;
        }
    }

    void note_wait() {
        std::uint64_t now = 0;
        if (state_ == State::on && cupti_->timestamp(&now) == CUPTI_SUCCESS)
            last_wait_ = static_cast<std::int64_t>(now);
    }

    void subscribe_to_all() {
        for (const auto id : {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
            subscription_.enable(CUPTI_CB_DOMAIN_RESOURCE, static_cast<CUpti_CallbackId>(id));
        if (options_.watch_waits && records_waits(options_.kinds))
            for (const auto id :
                 {CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED, CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED})
                subscription_.enable(CUPTI_CB_DOMAIN_SYNCHRONIZE, static_cast<CUpti_CallbackId>(id));
        if (options_.on_nvtx)
            for (const auto id : kNvtxNamingCalls)
                subscription_.enable(CUPTI_CB_DOMAIN_NVTX, static_cast<CUpti_CallbackId>(id));
    }

    void disable(std::size_t count) noexcept {
        while (count > 0) static_cast<void>(cupti_->disable(kinds_[--count]));
    }

    RecorderOptions options_;
    std::vector<CUpti_ActivityKind> kinds_;
    std::shared_ptr<CuptiApi> cupti_;
    std::shared_ptr<ActivitySink> sink_;
    std::atomic<State> state_{State::off};
    std::atomic<std::int64_t> last_wait_{0};
    NodeTracker tracker_;
    SinkPlace place_;
    Presence presence_;
    Settings settings_;
    Subscription subscription_;
};

ActivityRecorder::ActivityRecorder(RecorderOptions options) : ActivityRecorder(open_cupti(), std::move(options)) {}
ActivityRecorder::ActivityRecorder(std::shared_ptr<CuptiApi> cupti, RecorderOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(cupti), std::move(options))) {}
ActivityRecorder::~ActivityRecorder() = default;

void ActivityRecorder::start() { implementation_->start(); }
void ActivityRecorder::pause() noexcept { implementation_->pause(); }
void ActivityRecorder::flush() { implementation_->flush(); }
void ActivityRecorder::stop() { implementation_->stop(); }
void ActivityRecorder::push_operation(OperationNumber operation) { implementation_->push(operation); }
void ActivityRecorder::pop_operation() { implementation_->pop(); }
Recording ActivityRecorder::take() { return implementation_->take(); }
types::Nanoseconds ActivityRecorder::now() const { return implementation_->now(); }

OperationScope::OperationScope(ActivityRecorder* recorder, OperationNumber operation) : recorder_(recorder) {
    if (recorder_ != nullptr) recorder_->push_operation(operation);
}

OperationScope::~OperationScope() {
    if (recorder_ == nullptr) return;
    try {
        recorder_->pop_operation();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "warning: %s\n", error.what());
    }
}

}  // namespace stowage::profiler
