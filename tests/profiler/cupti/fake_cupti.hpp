#pragma once

#include <cstring>
#include <map>
#include <string>
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

    /// As CUPTI does while a graph is captured, and while one is made executable.
    void create_node(std::uint64_t node);
    void clone_node(std::uint64_t original, std::uint64_t node);

    [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
    [[nodiscard]] const std::vector<CUpti_ActivityKind>& enabled() const { return enabled_; }
    [[nodiscard]] const std::vector<std::uint64_t>& pushed() const { return pushed_; }
    [[nodiscard]] bool is_subscribed() const { return callback_ != nullptr; }

    CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) override;
    CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) override;
    CUptiResult enable_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) override;
    CUptiResult graph_node_id(CUgraphNode node, std::uint64_t* id) override;
    CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                 CUpti_BuffersCallbackCompleteFunc completed) override;
    CUptiResult enable(CUpti_ActivityKind kind) override;
    CUptiResult disable(CUpti_ActivityKind kind) override;
    CUptiResult flush_all(std::uint32_t flag) override;
    CUptiResult next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) override;
    CUptiResult dropped_records(std::size_t* dropped) override;
    CUptiResult push_external_id(std::uint64_t id) override;
    CUptiResult pop_external_id() override;
    CUptiResult timestamp(std::uint64_t* nanoseconds) override;
    const char* result_text(CUptiResult result) override;

private:
    CUptiResult result_of(const std::string& call);
    void notify(CUpti_CallbackIdResource id, CUpti_GraphData data);

    std::vector<std::vector<std::uint8_t>> records_;
    std::vector<std::size_t> delivered_;  ///< sizes of the records of the buffer being read
    std::map<std::string, CUptiResult> failures_;
    std::vector<std::string> calls_;
    std::vector<CUpti_ActivityKind> enabled_;
    std::vector<std::uint64_t> pushed_;
    std::size_t dropped_ = 0;
    CUpti_CallbackFunc callback_ = nullptr;
    void* context_ = nullptr;
    CUpti_BuffersCallbackRequestFunc requested_ = nullptr;
    CUpti_BuffersCallbackCompleteFunc completed_ = nullptr;
};

}  // namespace stowage::support
