#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stowage::profiler {

/// The few calls of CUPTI that are used, each as CUPTI documents it: what a fake stands in for in tests.
class CuptiApi {
public:
    virtual ~CuptiApi() = default;

    virtual CUptiResult subscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* context) = 0;
    virtual CUptiResult unsubscribe(CUpti_SubscriberHandle subscriber) = 0;
    virtual CUptiResult enable_callback(CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                        CUpti_CallbackId id) = 0;
    virtual CUptiResult graph_node_id(CUgraphNode node, std::uint64_t* id) = 0;

    virtual CUptiResult register_buffers(CUpti_BuffersCallbackRequestFunc requested,
                                         CUpti_BuffersCallbackCompleteFunc completed) = 0;
    virtual CUptiResult enable(CUpti_ActivityKind kind) = 0;
    virtual CUptiResult disable(CUpti_ActivityKind kind) = 0;
    virtual CUptiResult flush_all(std::uint32_t flag) = 0;
    virtual CUptiResult next_record(std::uint8_t* buffer, std::size_t valid_size, CUpti_Activity** record) = 0;
    virtual CUptiResult dropped_records(std::size_t* dropped) = 0;
    virtual CUptiResult push_external_id(std::uint64_t id) = 0;
    virtual CUptiResult pop_external_id() = 0;

    virtual CUptiResult timestamp(std::uint64_t* nanoseconds) = 0;
    /// CUPTI's words for a result.
    virtual const char* result_text(CUptiResult result) = 0;
};

/// The real one: libcupti.so.13, opened now and never closed, since CUPTI keeps threads of its own.
/// Looked for where the dynamic linker looks, then below /usr/local/cuda.
/// Throws: CuptiError if it is not found or lacks a call.
std::unique_ptr<CuptiApi> open_cupti();

}  // namespace stowage::profiler
