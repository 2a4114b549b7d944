#pragma once

#include <cupti.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "profiler/cupti/activity.hpp"
#include "profiler/cupti/name_table.hpp"
#include "profiler/cupti/record_kinds.hpp"

namespace stowage::profiler {

/// One side of an NVTX range, as it comes: the end has no name, and may come first if another thread ended it.
struct RangeEdge {
    std::uint32_t id = 0;
    bool is_end = false;
    NvtxRange range;  ///< of an end: only `end`
};

/// Records of CUPTI turned into ours.
struct Decoded {
    RecordKinds keep = kOperationKinds;
    NameTable names;
    std::vector<Activity> activities;                                 ///< `issued_under` is not known yet
    std::unordered_map<std::uint32_t, OperationNumber> issued_under;  ///< by correlation
    std::vector<Call> calls;                                          ///< `name` is not known yet
    std::vector<Allocation> allocations;
    std::vector<PoolEvent> pools;
    std::vector<EventRecord> events;
    std::vector<Wait> waits;
    std::vector<NvtxMark> marks;
    std::vector<RangeEdge> edges;
    std::uint64_t untimed = 0;
};

/// Adds one record; those of kinds that are not kept are passed over. The only place that knows CUPTI's structs, which
/// change their names with every version: a newer CUPTI appends fields to them and keeps the old ones where they are.
void decode(const CUpti_Activity& record, Decoded& into);

/// Adds all of `more`.
void append(Decoded& into, const Decoded& more);

}  // namespace stowage::profiler
