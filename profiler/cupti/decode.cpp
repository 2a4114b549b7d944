#include "profiler/cupti/decode.hpp"

#include "profiler/cupti/decode_host.hpp"

namespace stowage::profiler {
namespace {

using Kernel = CUpti_ActivityKernel10;
using Copy = CUpti_ActivityMemcpy6;
using PeerCopy = CUpti_ActivityMemcpyPtoP4;
using Memset = CUpti_ActivityMemset4;
using External = CUpti_ActivityExternalCorrelation;

CopyKind copy_kind(std::uint8_t kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return CopyKind::host_to_device;
        case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return CopyKind::device_to_host;
        case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return CopyKind::device_to_device;
        default: return CopyKind::other;
    }
}

/// What the structs have in common, though not in the same places.
template <class Record>
Activity common_part(const Record& record, ActivityKind kind) {
    Activity activity;
    activity.kind = kind;
    activity.start = in_time(record.start);
    activity.end = in_time(record.end);
    activity.device = record.deviceId;
    activity.context = record.contextId;
    activity.stream = record.streamId;
    activity.correlation = record.correlationId;
    activity.graph = record.graphId;
    activity.graph_node = record.graphNodeId;
    return activity;
}

void add(const Kernel& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::kernel);
    activity.name = name_index(record.name, into);
    into.activities.push_back(activity);
}

template <class AnyCopy>
void add_copy(const AnyCopy& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::copy);
    activity.copy_kind = copy_kind(record.copyKind);
    activity.bytes = in_bytes(record.bytes);
    into.activities.push_back(activity);
}

void add(const Copy& record, Decoded& into) { add_copy(record, into); }
void add(const PeerCopy& record, Decoded& into) { add_copy(record, into); }

void add(const Memset& record, Decoded& into) {
    Activity activity = common_part(record, ActivityKind::memset);
    activity.bytes = in_bytes(record.bytes);
    into.activities.push_back(activity);
}

template <class Record>
void add_timed(const CUpti_Activity& record, Decoded& into) {
    const auto& full = reinterpret_cast<const Record&>(record);
    if (full.start != 0 || full.end != 0)
        add(full, into);
    else
        ++into.untimed;
}

void add_external(const External& record, Decoded& into) {
    if (record.externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return;
    into.issued_under.insert_or_assign(std::uint32_t{record.correlationId}, OperationNumber{record.externalId});
}

bool decode_device_record(const CUpti_Activity& record, Decoded& into) {
    switch (record.kind) {
        case CUPTI_ACTIVITY_KIND_KERNEL:
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: add_timed<Kernel>(record, into); return true;
        case CUPTI_ACTIVITY_KIND_MEMCPY: add_timed<Copy>(record, into); return true;
        case CUPTI_ACTIVITY_KIND_MEMCPY2: add_timed<PeerCopy>(record, into); return true;
        case CUPTI_ACTIVITY_KIND_MEMSET: add_timed<Memset>(record, into); return true;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
            add_external(reinterpret_cast<const External&>(record), into);
            return true;
        default: return false;
    }
}

template <class Record>
void append_all(std::vector<Record>& into, const std::vector<Record>& more) {
    into.insert(into.end(), more.begin(), more.end());
}

/// Where the names of one table are in another.
class Renaming {
public:
    Renaming(NameTable& into, const NameTable& from) {
        indices_.reserve(from.names().size());
        for (const std::string& name : from.names()) indices_.push_back(into.index_of(name));
    }
    void apply(std::uint32_t& name) const { name = indices_.at(name); }

private:
    std::vector<std::uint32_t> indices_;
};

void append_named(Decoded& into, const Decoded& more) {
    const Renaming renaming(into.names, more.names);
    for (Activity activity : more.activities) {
        renaming.apply(activity.name);
        into.activities.push_back(activity);
    }
    for (Allocation allocation : more.allocations) {
        renaming.apply(allocation.name);
        renaming.apply(allocation.source);
        into.allocations.push_back(allocation);
    }
    for (NvtxMark mark : more.marks) {
        renaming.apply(mark.name);
        renaming.apply(mark.domain);
        into.marks.push_back(mark);
    }
    for (RangeEdge edge : more.edges) {
        renaming.apply(edge.range.name);
        renaming.apply(edge.range.domain);
        into.edges.push_back(edge);
    }
}

}  // namespace

void decode(const CUpti_Activity& record, Decoded& into) {
    if (!decode_device_record(record, into)) decode_host_record(record, into);
}

void append(Decoded& into, const Decoded& more) {
    append_named(into, more);
    append_all(into.calls, more.calls);
    append_all(into.pools, more.pools);
    append_all(into.events, more.events);
    append_all(into.waits, more.waits);
    for (const auto& [correlation, operation] : more.issued_under)
        into.issued_under.insert_or_assign(correlation, operation);
    into.untimed += more.untimed;
}

}  // namespace stowage::profiler
