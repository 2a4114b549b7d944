#include "profiler/cupti/recorder.hpp"

#include <array>
#include <cstdio>
#include <exception>
#include <utility>

#include "profiler/cupti/activity_sink.hpp"
#include "profiler/cupti/expect.hpp"
#include "profiler/cupti/node_tracker.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::profiler {
namespace {

/// Calls are recorded too, because CUPTI says under which operation a call was made, and with it its activities.
constexpr std::array kKinds = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET};

void CUPTIAPI notice(void* tracker, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
    try {
        static_cast<NodeTracker*>(tracker)->notice(domain, id, data);
    } catch (...) {  // no memory: the node stays unknown, and its activities are counted as unmatched
        std::fputs("warning: a node of a graph could not be noted\n", stderr);
    }
}

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

/// CUPTI's one subscription.
class Subscription {
public:
    Subscription(CuptiApi& cupti, NodeTracker& tracker) : cupti_(cupti) {
        expect(cupti, cupti.subscribe(&handle_, notice, &tracker), "cuptiSubscribe");
    }
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    Subscription(Subscription&&) = delete;
    Subscription& operator=(Subscription&&) = delete;
    ~Subscription() { static_cast<void>(cupti_.unsubscribe(handle_)); }

    void enable(CUpti_CallbackIdResource id) {
        expect(cupti_, cupti_.enable_callback(handle_, CUPTI_CB_DOMAIN_RESOURCE, static_cast<CUpti_CallbackId>(id)),
               "cuptiEnableCallback");
    }

private:
    CuptiApi& cupti_;
    CUpti_SubscriberHandle handle_ = nullptr;
};

}  // namespace

class ActivityRecorder::Implementation {
public:
    explicit Implementation(std::shared_ptr<CuptiApi> cupti)
        : cupti_(std::move(cupti)),
          sink_(std::make_shared<ActivitySink>(cupti_)),
          tracker_(*cupti_),
          place_(sink_),
          subscription_(*cupti_, tracker_) {
        subscription_.enable(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
        subscription_.enable(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
        expect(*cupti_, cupti_->register_buffers(request_buffer, complete_buffer), "cuptiActivityRegisterCallbacks");
    }
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;
    Implementation(Implementation&&) = delete;
    Implementation& operator=(Implementation&&) = delete;
    ~Implementation() {
        disable_all();
        static_cast<void>(cupti_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    }

    void start() {
        for (const CUpti_ActivityKind kind : kKinds) {
            ++enabled_;  // first, so that a failure undoes this one too
            if (const CUptiResult result = cupti_->enable(kind); result != CUPTI_SUCCESS) {
                disable_all();
                expect(*cupti_, result, "cuptiActivityEnable");
            }
        }
    }

    /// Forced: otherwise a buffer with one record that is not complete, as that of a call, would stay.
    void flush() { expect(*cupti_, cupti_->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll"); }

    void stop() {
        flush();
        disable_all();
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
        return recording;
    }

    types::Nanoseconds now() {
        std::uint64_t nanoseconds = 0;
        expect(*cupti_, cupti_->timestamp(&nanoseconds), "cuptiGetTimestamp");
        return types::Nanoseconds(static_cast<std::int64_t>(nanoseconds));
    }

private:
    void disable_all() {
        while (enabled_ > 0) static_cast<void>(cupti_->disable(kKinds.at(--enabled_)));
    }

    std::shared_ptr<CuptiApi> cupti_;
    std::shared_ptr<ActivitySink> sink_;
    NodeTracker tracker_;
    SinkPlace place_;
    Subscription subscription_;
    std::size_t enabled_ = 0;
};

ActivityRecorder::ActivityRecorder() : ActivityRecorder(open_cupti()) {}
ActivityRecorder::ActivityRecorder(std::shared_ptr<CuptiApi> cupti)
    : implementation_(std::make_unique<Implementation>(std::move(cupti))) {}
ActivityRecorder::~ActivityRecorder() = default;

void ActivityRecorder::start() { implementation_->start(); }
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
