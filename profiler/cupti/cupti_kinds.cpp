#include "profiler/cupti/cupti_kinds.hpp"

#include <algorithm>

namespace stowage::profiler {

std::vector<CUpti_ActivityKind> cupti_kinds(RecordKinds kinds) {
    std::vector<CUpti_ActivityKind> found;
    const auto add = [&](RecordKind kind, CUpti_ActivityKind needed) {
        if (kinds.has(kind) && std::find(found.begin(), found.end(), needed) == found.end()) found.push_back(needed);
    };
    add(RecordKind::operations, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    // CUPTI says under what a call was made, and with it its activities, only while calls are recorded.
    add(RecordKind::operations, CUPTI_ACTIVITY_KIND_RUNTIME);
    add(RecordKind::operations, CUPTI_ACTIVITY_KIND_DRIVER);
    add(RecordKind::runtime_calls, CUPTI_ACTIVITY_KIND_RUNTIME);
    add(RecordKind::driver_calls, CUPTI_ACTIVITY_KIND_DRIVER);
    add(RecordKind::kernels, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    add(RecordKind::copies, CUPTI_ACTIVITY_KIND_MEMCPY);
    add(RecordKind::peer_copies, CUPTI_ACTIVITY_KIND_MEMCPY2);
    add(RecordKind::memsets, CUPTI_ACTIVITY_KIND_MEMSET);
    add(RecordKind::allocations, CUPTI_ACTIVITY_KIND_MEMORY2);
    add(RecordKind::pools, CUPTI_ACTIVITY_KIND_MEMORY_POOL);
    add(RecordKind::events, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
    add(RecordKind::synchronizations, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    add(RecordKind::ranges, CUPTI_ACTIVITY_KIND_MARKER);
    return found;
}

}  // namespace stowage::profiler
