#include "profiler/cupti/decode.hpp"

namespace stowage::profiler {
namespace {

using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using Memset = CUpti_ActivityMemset4;
using External = CUpti_ActivityExternalCorrelation;

types::Nanoseconds in_time(std::uint64_t nanoseconds) {
    return types::Nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

CopyKind copy_kind(std::uint8_t kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return CopyKind::host_to_device;
        case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return CopyKind::device_to_host;
        case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return CopyKind::device_to_device;
        default: return CopyKind::other;
    }
}

/// What the three structs have in common, though not in the same places.
template <class Record>
Activity common_part(const Record& record, ActivityKind kind) {
    Activity activity;
    activity.kind = kind;
    activity.start = in_time(record.start);
    activity.end = in_time(record.end);
    activity.device = record.deviceId;
    activity.stream = record.streamId;
    activity.correlation = record.correlationId;
    activity.graph = record.graphId;
    activity.graph_node = record.graphNodeId;
    return activity;
}

template <class Record>
bool is_timed(const Record& record) {
    return record.start != 0 || record.end != 0;
}

void add(const Kernel& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::kernel);
    activity.name = into.names.index_of(record.name == nullptr ? "" : record.name);
    into.activities.push_back(activity);
}

void add(const Copy& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::copy);
    activity.copy_kind = copy_kind(record.copyKind);
    activity.bytes = types::Bytes{static_cast<std::int64_t>(record.bytes)};
    into.activities.push_back(activity);
}

void add(const Memset& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::memset);
    activity.bytes = types::Bytes{static_cast<std::int64_t>(record.bytes)};
    into.activities.push_back(activity);
}

template <class Record>
void add_timed(const CUpti_Activity& record, Decoded& into) {
    const auto& full = reinterpret_cast<const Record&>(record);
    if (is_timed(full))
        add(full, into);
    else
        ++into.untimed;
}

void add_external(const External& record, Decoded& into) {
    if (record.externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return;
    into.issued_under.insert_or_assign(std::uint32_t{record.correlationId}, OperationNumber{record.externalId});
}

}  // namespace

std::uint32_t NameTable::index_of(const std::string& name) {
    const auto [entry, is_new] = indices_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return entry->second;
}

void decode(const CUpti_Activity& record, Decoded& into) {
    switch (record.kind) {
        case CUPTI_ACTIVITY_KIND_KERNEL:
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: add_timed<Kernel>(record, into); break;
        case CUPTI_ACTIVITY_KIND_MEMCPY: add_timed<Copy>(record, into); break;
        case CUPTI_ACTIVITY_KIND_MEMSET: add_timed<Memset>(record, into); break;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
            add_external(reinterpret_cast<const External&>(record), into);
            break;
        default: break;
    }
}

void append(Decoded& into, const Decoded& more) {
    for (Activity activity : more.activities) {
        activity.name = into.names.index_of(more.names.names()[activity.name]);
        into.activities.push_back(activity);
    }
    for (const auto& [correlation, operation] : more.issued_under)
        into.issued_under.insert_or_assign(correlation, operation);
    into.untimed += more.untimed;
}

}  // namespace stowage::profiler
