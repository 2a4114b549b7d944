#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace stowage::profiler {

/// The few calls of CUPTI that are used, each as CUPTI documents it: what a fake stands in for in tests.
class CuptiApi {
public:
    virtual ~CuptiApi() = default;

    virtual CUptiResult version(std::uint32_t* version) = 0;
    virtual CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) = 0;
    virtual CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) = 0;
    virtual CUptiResult enable_callback(bool on, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                        CUpti_CallbackId id) = 0;
    virtual CUptiResult callback_name(CUpti_CallbackDomain domain, CUpti_CallbackId id, const char** name) = 0;
    virtual CUptiResult graph_node_id(CUgraphNode node, std::uint64_t* id) = 0;
    virtual CUptiResult context_id(CUcontext context, std::uint32_t* id) = 0;

    virtual CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                         CUpti_BuffersCallbackCompleteFunc completed) = 0;
    virtual CUptiResult enable(CUpti_ActivityKind kind) = 0;
    virtual CUptiResult disable(CUpti_ActivityKind kind) = 0;
    virtual CUptiResult flush_all(std::uint32_t flag) = 0;
    virtual CUptiResult next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) = 0;
    virtual CUptiResult dropped_records(CUcontext context, std::uint32_t stream, std::size_t* dropped) = 0;
    /// Whether the buffers that it is given are zero already, so that it need not make them so on the caller's thread.
    virtual CUptiResult promise_zeroed_buffers(bool zeroed) = 0;
    virtual CUptiResult thread_id_type(CUpti_ActivityThreadIdType* type) = 0;
    virtual CUptiResult set_thread_id_type(CUpti_ActivityThreadIdType type) = 0;
    virtual CUptiResult push_external_id(std::uint64_t id) = 0;
    virtual CUptiResult pop_external_id() = 0;

    virtual CUptiResult timestamp(std::uint64_t* nanoseconds) = 0;
    /// Takes CUPTI out of the process. Nobody may be inside a call of CUDA or CUPTI.
    virtual CUptiResult finalize() = 0;
    /// CUPTI's words for a result.
    virtual const char* result_text(CUptiResult result) = 0;
};

/// The real one: libcupti.so.13, opened now and never closed, since CUPTI keeps threads of its own.
/// With a path, that file and no other. Else where the dynamic linker looks, then below /usr/local/cuda.
/// Throws: CuptiError if it is not found or lacks a call, or if there is no driver.
std::unique_ptr<CuptiApi> open_cupti(const std::string& path = "");

/// CUPTI's number in words: "13.0, update 1".
std::string version_text(std::uint32_t version);

/// Throws: CuptiError unless CUPTI says that it is one whose records this was written for: 13.x.
void expect_version(CuptiApi& cupti);

}  // namespace stowage::profiler
