#pragma once

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/cupti/cupti_api.hpp"

namespace stowage::support {

/// CUPTI without a device: records are put in by a test and delivered by a flush, calls can be made to fail, and what
/// was called is remembered. Nodes of graphs are numbers in the clothes of pointers.
class FakeCupti final : public profiler::CuptiApi {
public:
    /// To be delivered by the next flush.
    template <class Record>
    void put(const Record& record) {
        std::vector<std::uint8_t> bytes(sizeof(Record));
        std::memcpy(bytes.data(), &record, sizeof(Record));
        records_.push_back(std::move(bytes));
    }
    /// The next calls of this name fail with this.
    void fail(const std::string& call, CUptiResult result) { failures_[call] = result; }
    /// Counts as lost at the next delivery.
    void drop(std::size_t records) { dropped_ += records; }
    /// The next deliveries say that they are of this stream of this context.
    void deliver_as(std::uint32_t context, std::uint32_t stream) { context_number_ = context, stream_number_ = stream; }
    /// As another profiler does that registers buffers of its own: what is flushed from now on goes there.
    void take_over(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed) {
        requested_ = requested;
        completed_ = completed;
    }
    /// Asks for a buffer and keeps it.
    std::uint8_t* ask_for_buffer(std::size_t* size);
    /// Delivers any memory as if it were a buffer, with one record in it.
    void deliver(std::uint8_t* buffer, std::size_t valid);
    void set_version(std::uint32_t version) { version_ = version; }
    void set_time(std::uint64_t nanoseconds) { now_ = nanoseconds; }

    /// As CUPTI does while a graph is captured, and while one is made executable.
    void create_node(std::uint64_t node);
    void clone_node(std::uint64_t original, std::uint64_t node);
    /// The host has waited for a stream.
    void synchronize();
    /// A call of NVTX with these parameters, if callbacks for it are on.
    void nvtx(CUpti_CallbackId id, const void* parameters);

    [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
    [[nodiscard]] const std::vector<CUpti_ActivityKind>& enabled() const { return enabled_; }
    [[nodiscard]] const std::vector<std::uint64_t>& pushed() const { return pushed_; }
    [[nodiscard]] bool is_subscribed() const { return callback_ != nullptr; }
    [[nodiscard]] std::size_t callbacks_on() const { return callbacks_.size(); }
    [[nodiscard]] bool are_buffers_zeroed() const { return zeroed_; }
    [[nodiscard]] CUpti_ActivityThreadIdType thread_ids() const { return thread_ids_; }
    [[nodiscard]] bool is_finalized() const { return finalized_; }

    CUptiResult version(std::uint32_t* version) override;
    CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) override;
    CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) override;
    CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) override;
    CUptiResult callback_name(CUpti_CallbackDomain domain, CUpti_CallbackId id, const char** name) override;
    CUptiResult graph_node_id(CUgraphNode node, std::uint64_t* id) override;
    CUptiResult context_id(CUcontext context, std::uint32_t* id) override;
    CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                 CUpti_BuffersCallbackCompleteFunc completed) override;
    CUptiResult enable(CUpti_ActivityKind kind) override;
    CUptiResult disable(CUpti_ActivityKind kind) override;
    CUptiResult flush_all(std::uint32_t flag) override;
    CUptiResult next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) override;
    CUptiResult dropped_records(CUcontext context, std::uint32_t stream, std::size_t* dropped) override;
    CUptiResult promise_zeroed_buffers(bool zeroed) override;
    CUptiResult thread_id_type(CUpti_ActivityThreadIdType* type) override;
    CUptiResult set_thread_id_type(CUpti_ActivityThreadIdType type) override;
    CUptiResult push_external_id(std::uint64_t id) override;
    CUptiResult pop_external_id() override;
    CUptiResult timestamp(std::uint64_t* nanoseconds) override;
    CUptiResult finalize() override;
    const char* result_text(CUptiResult result) override;

private:
    CUptiResult result_of(const std::string& call);
    void notify(CUpti_CallbackIdResource id, CUpti_GraphData data);

    std::vector<std::vector<std::uint8_t>> records_;
    std::vector<std::size_t> delivered_;  ///< sizes of the records of the buffer being read
    std::size_t index_ = 0;               ///< of the record that was told last, and where it begins
    std::size_t offset_ = 0;
    std::map<std::string, CUptiResult> failures_;
    std::vector<std::string> calls_;
    std::vector<CUpti_ActivityKind> enabled_;
    std::vector<std::uint64_t> pushed_;
    std::size_t dropped_ = 0;
    std::uint32_t version_ = 130001;
    std::uint64_t now_ = 1234;
    std::uint32_t context_number_ = 0;  ///< 0: deliveries are of no context
    std::uint32_t stream_number_ = 0;
    bool zeroed_ = false;
    bool finalized_ = false;
    CUpti_ActivityThreadIdType thread_ids_ = CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT;
    std::set<std::pair<CUpti_CallbackDomain, CUpti_CallbackId>> callbacks_;
    CUpti_CallbackFunc callback_ = nullptr;
    void* context_ = nullptr;
    CUpti_BuffersCallbackRequestFunc requested_ = nullptr;
    CUpti_BuffersCallbackCompleteFunc completed_ = nullptr;
};

}  // namespace stowage::support
