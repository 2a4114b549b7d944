#include "profiler/cupti/cupti_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {
namespace {

constexpr CUpti_ExternalCorrelationKind kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

void* open_library() {
    constexpr std::array<const char*, 4> kNames = {"libcupti.so.13", "/usr/local/cuda/lib64/libcupti.so.13",
                                                   "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
                                                   "/usr/local/cuda/lib/libcupti.so.13"};
    std::string why;
    for (const char* name : kNames) {
        if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
        const char* said = dlerror();
        if (why.empty() && said != nullptr) why = said;
    }
    throw CuptiError(fmt::format(
        "libcupti.so.13 cannot be opened ({}): it comes with the CUDA 13 toolkit and is needed to time single "
        "operations; put its folder into LD_LIBRARY_PATH",
        why));
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    if (function == nullptr) throw CuptiError(fmt::format("libcupti.so.13 has no {}: a newer one is needed", name));
}

class RealCupti final : public CuptiApi {
public:
    explicit RealCupti(void* library) {
        find(library, "cuptiSubscribe", subscribe_);
        find(library, "cuptiUnsubscribe", unsubscribe_);
        find(library, "cuptiEnableCallback", enable_callback_);
        find(library, "cuptiGetGraphNodeId", graph_node_id_);
        find(library, "cuptiActivityRegisterCallbacks", register_buffers_);
        find(library, "cuptiActivityEnable", enable_);
        find(library, "cuptiActivityDisable", disable_);
        find(library, "cuptiActivityFlushAll", flush_all_);
        find(library, "cuptiActivityGetNextRecord", next_record_);
        find(library, "cuptiActivityGetNumDroppedRecords", dropped_records_);
        find(library, "cuptiActivityPushExternalCorrelationId", push_);
        find(library, "cuptiActivityPopExternalCorrelationId", pop_);
        find(library, "cuptiGetTimestamp", timestamp_);
        find(library, "cuptiGetResultString", result_string_);
    }

    CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) override {
        return subscribe_(subscriber, callback, context);
    }
    CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) override { return unsubscribe_(subscriber); }
    CUptiResult enable_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) override {
        return enable_callback_(1, subscriber, domain, id);
    }
    CUptiResult graph_node_id(CUgraphNode node, std::uint64_t* id) override { return graph_node_id_(node, id); }
    CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                 CUpti_BuffersCallbackCompleteFunc completed) override {
        return register_buffers_(requested, completed);
    }
    CUptiResult enable(CUpti_ActivityKind kind) override { return enable_(kind); }
    CUptiResult disable(CUpti_ActivityKind kind) override { return disable_(kind); }
    CUptiResult flush_all(std::uint32_t flag) override { return flush_all_(flag); }
    CUptiResult next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) override {
        return next_record_(buffer, valid_size, record);
    }
    CUptiResult dropped_records(std::size_t* dropped) override { return dropped_records_(nullptr, 0, dropped); }
    CUptiResult push_external_id(std::uint64_t id) override { return push_(kOurs, id); }
    CUptiResult pop_external_id() override { return pop_(kOurs, nullptr); }
    CUptiResult timestamp(std::uint64_t* nanoseconds) override { return timestamp_(nanoseconds); }
    const char* result_text(CUptiResult result) override {
        const char* text = nullptr;
        return result_string_(result, &text) == CUPTI_SUCCESS && text != nullptr ? text : "unknown CUPTI error";
    }

private:
    decltype(&cuptiSubscribe) subscribe_ = nullptr;
    decltype(&cuptiUnsubscribe) unsubscribe_ = nullptr;
    decltype(&cuptiEnableCallback) enable_callback_ = nullptr;
    decltype(&cuptiGetGraphNodeId) graph_node_id_ = nullptr;
    decltype(&cuptiActivityRegisterCallbacks) register_buffers_ = nullptr;
    decltype(&cuptiActivityEnable) enable_ = nullptr;
    decltype(&cuptiActivityDisable) disable_ = nullptr;
    decltype(&cuptiActivityFlushAll) flush_all_ = nullptr;
    decltype(&cuptiActivityGetNextRecord) next_record_ = nullptr;
    decltype(&cuptiActivityGetNumDroppedRecords) dropped_records_ = nullptr;
    decltype(&cuptiActivityPushExternalCorrelationId) push_ = nullptr;
    decltype(&cuptiActivityPopExternalCorrelationId) pop_ = nullptr;
    decltype(&cuptiGetTimestamp) timestamp_ = nullptr;
    decltype(&cuptiGetResultString) result_string_ = nullptr;
};

}  // namespace

std::unique_ptr<CuptiApi> open_cupti() { return std::make_unique<RealCupti>(open_library()); }

}  // namespace stowage::profiler
