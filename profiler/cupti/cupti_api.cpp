#include "profiler/cupti/cupti_api.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "profiler/cupti/cupti_error.hpp"

namespace stowage::profiler {
namespace {

constexpr CUpti_ExternalCorrelationKind kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

constexpr std::uint32_t kMajor = 13;
constexpr std::uint32_t kNumberedByToolkit = 130000;  // from here on xxyyzz for CUDA xx.yy; before, small numbers

/// Asked first: without a driver CUPTI 13.2 does not fail but calls itself without end while it words why.
void expect_driver() {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr) return;
    throw CuptiError("libcuda.so.1 cannot be opened: there is no NVIDIA driver here, and nothing to record");
}

void* open_file(const std::string& path) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* said = dlerror();
    throw CuptiError(
        fmt::format("{} cannot be opened as CUPTI ({})", path, said == nullptr ? "no reason given" : said));
}

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
        find(library, "cuptiGetVersion", version_);
        find(library, "cuptiSubscribe", subscribe_);
        find(library, "cuptiUnsubscribe", unsubscribe_);
        find(library, "cuptiEnableCallback", enable_callback_);
        find(library, "cuptiGetCallbackName", callback_name_);
        find(library, "cuptiGetGraphNodeId", graph_node_id_);
        find(library, "cuptiGetContextId", context_id_);
        find(library, "cuptiActivityRegisterCallbacks", register_buffers_);
        find(library, "cuptiActivityEnable", enable_);
        find(library, "cuptiActivityDisable", disable_);
        find(library, "cuptiActivityFlushAll", flush_all_);
        find(library, "cuptiActivityGetNextRecord", next_record_);
        find(library, "cuptiActivityGetNumDroppedRecords", dropped_records_);
        find(library, "cuptiActivityPushExternalCorrelationId", push_);
        find(library, "cuptiActivityPopExternalCorrelationId", pop_);
        find(library, "cuptiActivitySetAttribute", set_attribute_);
        find(library, "cuptiGetThreadIdType", thread_id_type_);
        find(library, "cuptiSetThreadIdType", set_thread_id_type_);
        find(library, "cuptiFinalize", finalize_);
        find(library, "cuptiGetTimestamp", timestamp_);
        find(library, "cuptiGetResultString", result_string_);
    }

    CUptiResult version(std::uint32_t* version) override { return version_(version); }
    CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) override {
        return subscribe_(subscriber, callback, context);
    }
    CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) override { return unsubscribe_(subscriber); }
    CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) override {
        return enable_callback_(on ? 1 : 0, subscriber, domain, id);
    }
    CUptiResult callback_name(CUpti_CallbackDomain domain, CUpti_CallbackId id, const char** name) override {
        return callback_name_(domain, id, name);
    }
    CUptiResult context_id(CUcontext context, std::uint32_t* id) override { return context_id_(context, id); }
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
    CUptiResult dropped_records(CUcontext context, std::uint32_t stream, std::size_t* dropped) override {
        return dropped_records_(context, stream, dropped);
    }
    CUptiResult promise_zeroed_buffers(bool zeroed) override {
        std::uint8_t value = zeroed ? 1 : 0;
        std::size_t size = sizeof(value);
        return set_attribute_(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &value);
    }
    CUptiResult thread_id_type(CUpti_ActivityThreadIdType* type) override { return thread_id_type_(type); }
    CUptiResult set_thread_id_type(CUpti_ActivityThreadIdType type) override { return set_thread_id_type_(type); }
    CUptiResult finalize() override { return finalize_(); }
    CUptiResult push_external_id(std::uint64_t id) override { return push_(kOurs, id); }
    CUptiResult pop_external_id() override { return pop_(kOurs, nullptr); }
    CUptiResult timestamp(std::uint64_t* nanoseconds) override { return timestamp_(nanoseconds); }
    const char* result_text(CUptiResult result) override {
        const char* text = nullptr;
        return result_string_(result, &text) == CUPTI_SUCCESS && text != nullptr ? text : "unknown CUPTI error";
    }

private:
    decltype(&cuptiGetVersion) version_ = nullptr;
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
    decltype(&cuptiGetCallbackName) callback_name_ = nullptr;
    decltype(&cuptiGetContextId) context_id_ = nullptr;
    decltype(&cuptiActivitySetAttribute) set_attribute_ = nullptr;
    decltype(&cuptiGetThreadIdType) thread_id_type_ = nullptr;
    decltype(&cuptiSetThreadIdType) set_thread_id_type_ = nullptr;
    decltype(&cuptiFinalize) finalize_ = nullptr;
    decltype(&cuptiGetTimestamp) timestamp_ = nullptr;
    decltype(&cuptiGetResultString) result_string_ = nullptr;
};

}  // namespace

std::unique_ptr<CuptiApi> open_cupti(const std::string& path) {
    expect_driver();
    return std::make_unique<RealCupti>(path.empty() ? open_library() : open_file(path));
}

std::string version_text(std::uint32_t version) {
    if (version < kNumberedByToolkit) return fmt::format("number {}, of CUDA 12 or older", version);
    const std::uint32_t update = version % 100;
    return fmt::format("{}.{}{}", version / 10000, version / 100 % 100,
                       update == 0 ? "" : fmt::format(", update {}", update));
}

void expect_version(CuptiApi& cupti) {
    std::uint32_t version = 0;
    if (cupti.version(&version) == CUPTI_SUCCESS && version / 10000 == kMajor) return;
    throw CuptiError(fmt::format(
        "this process has loaded CUPTI {}; stowage reads the records of CUPTI {}.x: put the folder with libcupti.so.{} "
        "of the CUDA {} toolkit first in LD_LIBRARY_PATH, or use a PyTorch built for CUDA {}",
        version_text(version), kMajor, kMajor, kMajor, kMajor));
}

}  // namespace stowage::profiler
