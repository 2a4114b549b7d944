#include "tests/profiler/cupti/fake_cupti.hpp"

#include <algorithm>
#include <utility>

namespace stowage::support {
namespace {

CUgraphNode as_node(std::uint64_t number) {
    return reinterpret_cast<CUgraphNode>(number);  // NOLINT(performance-no-int-to-ptr): a number is what it is
}

CUcontext as_context(std::uint64_t number) {
    return reinterpret_cast<CUcontext>(number);  // NOLINT(performance-no-int-to-ptr): the same
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

void FakeCupti::synchronize() {
    const std::pair id(CUPTI_CB_DOMAIN_SYNCHRONIZE,
                       static_cast<CUpti_CallbackId>(CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED));
    const CUpti_SynchronizeData data{};
    if (callbacks_.contains(id)) callback_(context_, id.first, id.second, &data);
}

void FakeCupti::nvtx(CUpti_CallbackId id, const void* parameters) {
    CUpti_NvtxData data{};
    data.functionParams = parameters;
    if (callbacks_.contains({CUPTI_CB_DOMAIN_NVTX, id})) callback_(context_, CUPTI_CB_DOMAIN_NVTX, id, &data);
}

std::uint8_t* FakeCupti::ask_for_buffer(std::size_t* size) {
    std::uint8_t* buffer = nullptr;
    std::size_t most = 0;
    requested_(&buffer, size, &most);
    return buffer;
}

CUptiResult FakeCupti::version(std::uint32_t* version) {
    *version = version_;
    return result_of("version");
}

CUptiResult FakeCupti::enable_callback(bool on, CUpti_SubscriberHandle /*subscriber*/, CUpti_CallbackDomain domain,
                                       CUpti_CallbackId id) {
    const CUptiResult result = result_of("enable_callback");
    if (on && result == CUPTI_SUCCESS) callbacks_.emplace(domain, id);
    if (!on) callbacks_.erase({domain, id});
    return result;
}

CUptiResult FakeCupti::callback_name(CUpti_CallbackDomain domain, CUpti_CallbackId id, const char** name) {
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && id == 211)
        *name = "cudaLaunchKernel_v7000";
    else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && id == 307)
        *name = "cuLaunchKernel";
    else
        return CUPTI_ERROR_INVALID_PARAMETER;
    return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::context_id(CUcontext context, std::uint32_t* id) {
    *id = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(context));
    return CUPTI_SUCCESS;
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
    std::size_t size = 0;
    std::uint8_t* const buffer = ask_for_buffer(&size);
    if (buffer == nullptr) return result;
    std::size_t used = 0;
    delivered_.clear();
    for (const std::vector<std::uint8_t>& record : records_) {
        std::memcpy(buffer + used, record.data(), record.size());
        used += record.size();
        delivered_.push_back(record.size());
    }
    records_.clear();
    completed_(as_context(context_number_), stream_number_, buffer, size, used);
    return result;
}

CUptiResult FakeCupti::next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) {
    if (*record == nullptr) {
        offset_ = 0;
        index_ = 0;
    } else {
        offset_ += delivered_.at(index_++);
    }
    if (offset_ >= valid_size) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(buffer + offset_);
    return CUPTI_SUCCESS;
}

void FakeCupti::deliver(std::uint8_t* buffer, std::size_t valid) {
    delivered_ = {valid};
    completed_(nullptr, 0, buffer, valid, valid);
}

CUptiResult FakeCupti::dropped_records(CUcontext context, std::uint32_t stream, std::size_t* dropped) {
    const bool of_delivery = context == as_context(context_number_) && stream == stream_number_;
    *dropped = of_delivery ? std::exchange(dropped_, 0) : 0;
    return CUPTI_SUCCESS;
}

CUptiResult FakeCupti::promise_zeroed_buffers(bool zeroed) {
    zeroed_ = zeroed;
    return result_of("promise_zeroed_buffers");
}

CUptiResult FakeCupti::thread_id_type(CUpti_ActivityThreadIdType* type) {
    *type = thread_ids_;
    return result_of("thread_id_type");
}

CUptiResult FakeCupti::set_thread_id_type(CUpti_ActivityThreadIdType type) {
    thread_ids_ = type;
    return result_of("set_thread_id_type");
}

CUptiResult FakeCupti::finalize() {
    finalized_ = true;
    return result_of("finalize");
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
    *nanoseconds = now_;
    return result_of("timestamp");
}

const char* FakeCupti::result_text(CUptiResult result) {
    switch (result) {
        case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: return "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
        case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: return "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
        default: return "CUPTI_ERROR_UNKNOWN";
    }
}

}  // namespace stowage::support
