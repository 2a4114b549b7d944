#include "planner/memory/pinned_arena.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

std::int64_t aligned(Bytes bytes) {
    const std::int64_t alignment = PinnedArena::kAlignment.count;
    return (bytes.count + alignment - 1) / alignment * alignment;
}

/// A placement: the offsets, and where the highest buffer ends.
struct Placement {
    std::vector<std::int64_t> offsets;
    std::int64_t end = 0;
};

enum class Gap : std::uint8_t { lowest, smallest };

/// The space that no live buffer has: gaps between them, and all that lies behind the last.
class FreeSpace {
public:
    std::int64_t take(std::int64_t size, Gap which) {
        auto best = gaps_.end();
        for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
            if (gap->second < size || (best != gaps_.end() && gap->second >= best->second)) continue;
            best = gap;
            if (which == Gap::lowest) break;
        }
        if (best == gaps_.end()) return std::exchange(end_, end_ + size);
        const auto [offset, length] = *best;
        gaps_.erase(best);
        if (length > size) gaps_.emplace(offset + size, length - size);
        return offset;
    }

    void give(std::int64_t offset, std::int64_t size) {
        auto next = gaps_.lower_bound(offset);
        if (next != gaps_.end() && next->first == offset + size) {
            size += next->second;
            next = gaps_.erase(next);
        }
        if (next != gaps_.begin()) {
            const auto previous = std::prev(next);
            if (previous->first + previous->second == offset) {
                offset = previous->first;
                size += previous->second;
                gaps_.erase(previous);
            }
        }
        if (offset + size == end_)
            end_ = offset;
        else
            gaps_.emplace(offset, size);
    }

private:
    std::map<std::int64_t, std::int64_t> gaps_;  ///< offset to length; none touches another or the end
    std::int64_t end_ = 0;
};

/// The lowest offset with `size` bytes that none of `taken`, offset (key) to end (value), overlaps.
std::int64_t lowest_gap(const std::multimap<std::int64_t, std::int64_t>& taken, std::int64_t size) {
    std::int64_t free_from = 0;
    for (const auto& [begin, end] : taken) {
        if (begin - free_from >= size) break;
        free_from = std::max(free_from, end);
    }
    return free_from;
}

class Placer {
public:
    explicit Placer(const std::vector<PinnedUse>& uses) : uses_(uses), by_acquisition_(uses.size()) {
        std::iota(by_acquisition_.begin(), by_acquisition_.end(), std::size_t{0});
        std::stable_sort(by_acquisition_.begin(), by_acquisition_.end(),
                         [&](std::size_t a, std::size_t b) { return uses[a].acquired < uses[b].acquired; });
    }

    /// Goes along with time: a buffer meets only those that live when it is acquired.
    [[nodiscard]] Placement in_time(Gap gap) const {
        Placement placement{std::vector<std::int64_t>(uses_.size()), 0};
        FreeSpace space;
        std::multimap<std::uint64_t, std::size_t> leaving;
        for (const std::size_t number : by_acquisition_) {
            const PinnedUse& use = uses_[number];
            for (; !leaving.empty() && leaving.begin()->first <= use.acquired; leaving.erase(leaving.begin())) {
                const std::size_t left = leaving.begin()->second;
                space.give(placement.offsets[left], aligned(uses_[left].bytes));
            }
            const std::int64_t size = aligned(use.bytes);
            placement.offsets[number] = space.take(size, gap);
            placement.end = std::max(placement.end, placement.offsets[number] + size);
            leaving.emplace(use.released, number);
        }
        return placement;
    }

    [[nodiscard]] Placement by_size() const {
        std::vector<std::size_t> order = by_acquisition_;
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return uses_[a].bytes > uses_[b].bytes; });
        Placement placement{std::vector<std::int64_t>(uses_.size()), 0};
        for (std::size_t i = 0; i < order.size(); ++i) {
            std::multimap<std::int64_t, std::int64_t> taken;
            for (std::size_t j = 0; j < i; ++j)
                if (live_together(uses_[order[i]], uses_[order[j]])) {
                    const std::int64_t offset = placement.offsets[order[j]];
                    taken.emplace(offset, offset + aligned(uses_[order[j]].bytes));
                }
            const std::int64_t size = aligned(uses_[order[i]].bytes);
            placement.offsets[order[i]] = lowest_gap(taken, size);
            placement.end = std::max(placement.end, placement.offsets[order[i]] + size);
        }
        return placement;
    }

    [[nodiscard]] std::int64_t live_peak() const {
        std::multimap<std::uint64_t, std::int64_t> leaving;
        std::int64_t live = 0;
        std::int64_t peak = 0;
        for (const std::size_t number : by_acquisition_) {
            const PinnedUse& use = uses_[number];
            for (; !leaving.empty() && leaving.begin()->first <= use.acquired; leaving.erase(leaving.begin()))
                live -= leaving.begin()->second;
            live += aligned(use.bytes);
            leaving.emplace(use.released, aligned(use.bytes));
            peak = std::max(peak, live);
        }
        return peak;
    }

private:
    static bool live_together(const PinnedUse& a, const PinnedUse& b) {
        return a.acquired < b.released && b.acquired < a.released;
    }

    const std::vector<PinnedUse>& uses_;
    std::vector<std::size_t> by_acquisition_;
};

}  // namespace

PinnedArena::PinnedArena(const std::vector<PinnedUse>& uses) {
    for (const PinnedUse& use : uses)
        STOWAGE_CHECK(use.bytes.count > 0 && use.acquired < use.released, "a pinned buffer has bytes and a life");
    const Placer placer(uses);
    live_peak_ = Bytes{placer.live_peak()};
    Placement best = placer.in_time(Gap::lowest);
    auto try_other = [&](Placement other) {
        if (other.end < best.end) best = std::move(other);
    };
    if (best.end > live_peak_.count) try_other(placer.in_time(Gap::smallest));
    if (best.end > live_peak_.count && uses.size() <= kFew) try_other(placer.by_size());
    size_ = Bytes{best.end};
    for (const std::int64_t offset : best.offsets) offsets_.push_back(Bytes{offset});
}

}  // namespace stowage::memory
