#include "tests/profiler/cupti/fake_cupti.hpp"

#include <algorithm>
#include <utility>

namespace stowage::support {
namespace {

CUgraphNode as_node(std::uint64_t number) {
    return reinterpret_cast<CUgraphNode>(number);  // NOLINT(performance-no-int-to-ptr): a number is what it is
}

}  // namespace

CUptiResult FakeCupti::result_of(const std::string& call) {
    calls_.push_back(call);
    const auto found = failures_.find(call);
    return found == failures_.end() ? CUPTI_SUCCESS : found->second;
}

void FakeCupti::notify(CUpti_CallbackIdResource id, CUpti_GraphData data) {
    if (callback_ == nullptr) return;
    CUpti_ResourceData resource{};
    resource.resourceDescriptor = &data;
    callback_(context_, CUPTI_CB_DOMAIN_RESOURCE, static_cast<CUpti_CallbackId>(id), &resource);
}

void FakeCupti::create_node(std::uint64_t node) {
    CUpti_GraphData data{};
    data.node = as_node(node);
    notify(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, data);
}

void FakeCupti::clone_node(std::uint64_t original, std::uint64_t node) {
    CUpti_GraphData data{};
    data.originalNode = as_node(original);
    data.node = as_node(node);
    notify(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, data);
}

CUptiResult FakeCupti::subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) {
    const CUptiResult result = result_of("subscribe");
    if (result != CUPTI_SUCCESS) return result;
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(this);
    callback_ = callback;
    context_ = context;
    return result;
}

CUptiResult FakeCupti::unsubscribe(CUpti_SubscriberHandle /*subscriber*/) {
    callback_ = nullptr;
    return result_of("unsubscribe");
}

CUptiResult FakeCupti::enable_callback(CUpti_SubscriberHandle /*subscriber*/, CUpti_CallbackDomain /*domain*/,
                                       CUpti_CallbackId /*id*/) {
    return result_of("enable_callback");
}

CUptiResult FakeCupti::graph_node_id(CUgraphNode node, std::uint64_t* id) {
    *id = reinterpret_cast<std::uint64_t>(node);
    return result_of("graph_node_id");
}

CUptiResult FakeCupti::register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                        CUpti_BuffersCallbackCompleteFunc completed) {
    requested_ = requested;
    completed_ = completed;
    return result_of("register_buffers");
}

CUptiResult FakeCupti::enable(CUpti_ActivityKind kind) {
    const CUptiResult result = result_of("enable " + std::to_string(kind));
    if (result == CUPTI_SUCCESS) enabled_.push_back(kind);
    return result;
}

CUptiResult FakeCupti::disable(CUpti_ActivityKind kind) {
    std::erase(enabled_, kind);
    return result_of("disable");
}

CUptiResult FakeCupti::flush_all(std::uint32_t /*flag*/) {
    const CUptiResult result = result_of("flush_all");
    if (result != CUPTI_SUCCESS || (records_.empty() && dropped_ == 0)) return result;
    std::uint8_t* buffer = nullptr;
    std::size_t size = 0;
    std::size_t most = 0;
    requested_(&buffer, &size, &most);
    if (buffer == nullptr) return result;
    std::size_t used = 0;
    delivered_.clear();
    for (const std::vector<std::uint8_t>& record : records_) {
        std::memcpy(buffer + used, record.data(), record.size());
        used += record.size();
        delivered_.push_back(record.size());
    }
    records_.clear();
    completed_(nullptr, 0, buffer, size, used);
    return result;
}

CUptiResult FakeCupti::next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) {
    std::size_t offset = 0;
    std::size_t index = 0;
    if (*record != nullptr) {
        const auto last = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(*record) - buffer);
        while (offset <= last) offset += delivered_[index++];
    }
    if (offset >= valid_size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(buffer + offset);
    return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::dropped_records(std::size_t* dropped) {
    *dropped = std::exchange(dropped_, 0);
    return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::push_external_id(std::uint64_t id) {
    const CUptiResult result = result_of("push");
    if (result == CUPTI_SUCCESS) pushed_.push_back(id);
    return result;
}

CUptiResult FakeCupti::pop_external_id() {
    if (!pushed_.empty()) pushed_.pop_back();
    return result_of("pop");
}

CUptiResult FakeCupti::timestamp(std::uint64_t* nanoseconds) {
    *nanoseconds = 1234;
    return result_of("timestamp");
}

const char* FakeCupti::result_text(CUptiResult result) {
    return result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                                    : "CUPTI_ERROR_UNKNOWN";
}

}  // namespace stowage::support
