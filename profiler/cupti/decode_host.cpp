#include "profiler/cupti/decode_host.hpp"

namespace stowage::profiler {
namespace {

void add_call(const CUpti_ActivityAPI& record, CallApi api, Decoded& into) {
    // They come with external correlation, which is made of them, whether they are wanted or not.
    const RecordKind kind = api == CallApi::runtime ? RecordKind::runtime_calls : RecordKind::driver_calls;
    if (!into.keep.has(kind)) return;
    if (record.start == 0 && record.end == 0) {
        ++into.untimed;
        return;
    }
    Call call;
    call.api = api;
    call.number = record.cbid;
    call.process = record.processId;
    call.thread = record.threadId;
    call.correlation = record.correlationId;
    call.result = record.returnValue;
    call.start = in_time(record.start);
    call.end = in_time(record.end);
    into.calls.push_back(call);
}

MemoryPlace place_of(CUpti_ActivityMemoryKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN: return MemoryPlace::unknown;
        case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE: return MemoryPlace::pageable;
        case CUPTI_ACTIVITY_MEMORY_KIND_PINNED: return MemoryPlace::pinned;
        case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
        case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC: return MemoryPlace::device;
        case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
        case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC: return MemoryPlace::managed;
        default: return MemoryPlace::other;
    }
}

void add_allocation(const CUpti_ActivityMemory4& record, Decoded& into) {
    Allocation allocation;
    allocation.release = record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
    allocation.asynchronous = record.isAsync != 0;
    allocation.place = place_of(record.memoryKind);
    allocation.device = record.deviceId;
    allocation.context = record.contextId;
    allocation.stream = record.streamId;
    allocation.correlation = record.correlationId;
    allocation.name = name_index(record.name, into);
    allocation.source = name_index(record.source, into);
    allocation.time = in_time(record.timestamp);
    allocation.address = record.address;
    allocation.bytes = in_bytes(record.bytes);
    if (record.isAsync != 0) {
        allocation.pool = record.memoryPoolConfig.address;
        if (record.memoryPoolConfig.memoryPoolType == CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL) {
            allocation.pool_size = in_bytes(record.memoryPoolConfig.pool.size);
            allocation.pool_used = in_bytes(record.memoryPoolConfig.utilizedSize);
        }
    }
    into.allocations.push_back(allocation);
}

PoolChange change_of(CUpti_ActivityMemoryPoolOperationType type) {
    switch (type) {
        case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED: return PoolChange::made;
        case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED: return PoolChange::destroyed;
        case CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED: return PoolChange::trimmed;
        default: return PoolChange::unknown;
    }
}

void add_pool(const CUpti_ActivityMemoryPool3& record, Decoded& into) {
    PoolEvent event;
    event.change = change_of(record.memoryPoolOperationType);
    event.managed = record.isManagedPool != 0;
    event.device = record.deviceId;
    event.correlation = record.correlationId;
    event.time = in_time(record.timestamp);
    event.address = record.address;
    event.size = in_bytes(record.size);
    event.used = in_bytes(record.utilizedSize);
    event.kept = event.change == PoolChange::trimmed ? in_bytes(record.minBytesToKeep) : types::Bytes{};
    into.pools.push_back(event);
}

void add_event(const CUpti_ActivityCudaEvent2& record, Decoded& into) {
    EventRecord event;
    event.event = record.eventId;
    event.device = record.deviceId;
    event.context = record.contextId;
    event.stream = record.streamId;
    event.correlation = record.correlationId;
    event.round = record.cudaEventSyncId;
    into.events.push_back(event);
}

WaitKind wait_kind(CUpti_ActivitySynchronizationType type) {
    switch (type) {
        case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE: return WaitKind::event;
        case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT: return WaitKind::stream_for_event;
        case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE: return WaitKind::stream;
        case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE: return WaitKind::context;
        default: return WaitKind::unknown;
    }
}

void add_wait(const CUpti_ActivitySynchronization2& record, Decoded& into) {
    if (record.start == 0 && record.end == 0) {
        ++into.untimed;
        return;
    }
    Wait wait;
    wait.kind = wait_kind(record.type);
    wait.context = record.contextId;
    wait.stream = record.streamId;
    wait.event = record.cudaEventId;
    wait.correlation = record.correlationId;
    wait.result = record.returnValue;
    wait.round = record.cudaEventSyncId;
    wait.start = in_time(record.start);
    wait.end = in_time(record.end);
    into.waits.push_back(wait);
}

std::uint32_t process_of(const CUpti_ActivityMarker2& record) {
    const bool has =
        record.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD || record.objectKind == CUPTI_ACTIVITY_OBJECT_PROCESS;
    return has ? record.objectId.pt.processId : 0;
}

std::uint32_t thread_of(const CUpti_ActivityMarker2& record) {
    return record.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD ? record.objectId.pt.threadId : 0;
}

void add_mark(const CUpti_ActivityMarker2& record, Decoded& into) {
    NvtxMark mark;
    mark.name = name_index(record.name, into);
    mark.domain = name_index(record.domain, into);
    mark.process = process_of(record);
    mark.thread = thread_of(record);
    mark.time = in_time(record.timestamp);
    into.marks.push_back(mark);
}

void add_edge(const CUpti_ActivityMarker2& record, bool is_end, Decoded& into) {
    RangeEdge edge;
    edge.id = record.id;
    edge.is_end = is_end;
    if (is_end) {
        edge.range.end = in_time(record.timestamp);
    } else {
        edge.range.id = record.id;
        edge.range.name = name_index(record.name, into);
        edge.range.domain = name_index(record.domain, into);
        edge.range.process = process_of(record);
        edge.range.thread = thread_of(record);
        edge.range.start = in_time(record.timestamp);
        edge.range.end = kStillOpen;
    }
    into.edges.push_back(edge);
}

void add_marker(const CUpti_ActivityMarker2& record, Decoded& into) {
    const auto flags = static_cast<unsigned>(record.flags);
    if (record.timestamp == 0)
        ++into.untimed;
    else if ((flags & CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS) != 0)
        add_mark(record, into);
    else if ((flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0)
        add_edge(record, false, into);
    else if ((flags & CUPTI_ACTIVITY_FLAG_MARKER_END) != 0)
        add_edge(record, true, into);
}

template <class Record>
const Record& as(const CUpti_Activity& record) {
    return reinterpret_cast<const Record&>(record);
}

}  // namespace

void decode_host_record(const CUpti_Activity& record, Decoded& into) {
    switch (record.kind) {
        case CUPTI_ACTIVITY_KIND_RUNTIME: add_call(as<CUpti_ActivityAPI>(record), CallApi::runtime, into); break;
        case CUPTI_ACTIVITY_KIND_DRIVER: add_call(as<CUpti_ActivityAPI>(record), CallApi::driver, into); break;
        case CUPTI_ACTIVITY_KIND_MEMORY2: add_allocation(as<CUpti_ActivityMemory4>(record), into); break;
        case CUPTI_ACTIVITY_KIND_MEMORY_POOL: add_pool(as<CUpti_ActivityMemoryPool3>(record), into); break;
        case CUPTI_ACTIVITY_KIND_CUDA_EVENT: add_event(as<CUpti_ActivityCudaEvent2>(record), into); break;
        case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: add_wait(as<CUpti_ActivitySynchronization2>(record), into); break;
        case CUPTI_ACTIVITY_KIND_MARKER: add_marker(as<CUpti_ActivityMarker2>(record), into); break;
        default: break;
    }
}

}  // namespace stowage::profiler
