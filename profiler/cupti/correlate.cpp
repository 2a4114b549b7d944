#include "profiler/cupti/correlate.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace stowage::profiler {
namespace {

using Key = std::pair<OperationNumber, OperationNumber>;
using Table = std::map<Key, OperationTimes>;

std::uint32_t& count_of(OperationTimes& times, ActivityKind kind) {
    switch (kind) {
        case ActivityKind::copy: return times.copies;
        case ActivityKind::memset: return times.memsets;
        case ActivityKind::kernel: break;
    }
    return times.kernels;
}

void add(Table& table, const Key& key, const Activity& activity) {
    const auto [entry, is_new] = table.try_emplace(key);
    OperationTimes& times = entry->second;
    if (is_new) {
        times.operation = key.first;
        times.launch = key.second;
        times.first_start = activity.start;
        times.last_end = activity.end;
    }
    times.first_start = std::min(times.first_start, activity.start);
    times.last_end = std::max(times.last_end, activity.end);
    times.busy += activity.end - activity.start;
    times.bytes += activity.bytes;
    ++count_of(times, activity.kind);
}

/// Whose an activity is; kNoOperation if nobody's.
Key owner_of(const Activity& activity, const NodeOperations& node_operations) {
    if (activity.graph_node == 0) return {activity.issued_under, kNoOperation};
    const auto found = node_operations.find(activity.graph_node);
    return {found == node_operations.end() ? kNoOperation : found->second, activity.issued_under};
}

std::vector<OperationTimes> by_start(const Table& table) {
    std::vector<OperationTimes> times;
    times.reserve(table.size());
    for (const auto& [key, entry] : table) times.push_back(entry);
    std::ranges::sort(times, {}, [](const OperationTimes& entry) {
        return std::tuple(entry.first_start, entry.last_end, entry.operation, entry.launch);
    });
    return times;
}

}  // namespace

CorrelatedTimes correlate(std::span<const Activity> activities, const NodeOperations& node_operations) {
    Table operations;
    Table launches;
    std::uint64_t unmatched = 0;
    for (const Activity& activity : activities) {
        const Key owner = owner_of(activity, node_operations);
        if (owner.first == kNoOperation)
            ++unmatched;
        else
            add(operations, owner, activity);
        if (activity.graph_node != 0 && activity.issued_under != kNoOperation)
            add(launches, {activity.issued_under, kNoOperation}, activity);
    }
    return {.operations = by_start(operations), .launches = by_start(launches), .unmatched = unmatched};
}

}  // namespace stowage::profiler
