#include "profiler/cupti/range_pairing.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stowage::profiler {

void RangePairing::add(const std::vector<RangeEdge>& edges) {
    for (const RangeEdge& edge : edges) {
        if (edge.is_end)
            ends_.insert_or_assign(edge.id, edge.range.end);
        else
            open_.insert_or_assign(edge.id, edge.range);
    }
    for (auto end = ends_.begin(); end != ends_.end();) {
        const auto start = open_.find(end->first);
        if (start == open_.end()) {
            ++end;
            continue;
        }
        start->second.end = end->second;
        complete_.push_back(start->second);
        open_.erase(start);
        end = ends_.erase(end);
    }
}

std::vector<NvtxRange> RangePairing::take() {
    std::vector<NvtxRange> ranges = std::exchange(complete_, {});
    for (const auto& [id, range] : open_) ranges.push_back(range);
    std::sort(ranges.begin(), ranges.end(), [](const NvtxRange& left, const NvtxRange& right) {
        return std::tuple(left.start, left.id) < std::tuple(right.start, right.id);
    });
    return ranges;
}

void RangePairing::rename(const NameTable& from, NameTable& into) {
    for (auto& [id, range] : open_) {
        range.name = into.index_of(from.names().at(range.name));
        range.domain = into.index_of(from.names().at(range.domain));
    }
}

}  // namespace stowage::profiler
