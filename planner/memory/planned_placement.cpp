#include "planner/memory/planned_placement.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "planner/memory/planned_memory.hpp"

namespace stowage::memory {
namespace {

using program::index;
using program::StreamOrder;

/// Buffers that are freed in the order of their frees.
std::vector<std::uint32_t> in_order_of_frees(const std::vector<PlannedBuffer>& buffers) {
    std::vector<std::uint32_t> freed;
    for (std::uint32_t i = 0; i < buffers.size(); ++i)
        if (buffers[i].gone != PlannedBuffer::kNever) freed.push_back(i);
    std::sort(freed.begin(), freed.end(),
              [&](std::uint32_t a, std::uint32_t b) { return buffers[a].gone < buffers[b].gone; });
    return freed;
}

/// The free bytes of a region as blocks in the order of their addresses, each with the places that its last users
/// reached. Once a stream may use a block it always may: a bit a stream remembers that.
class FreeBytes {
public:
    /// `streams`: one bit for each that will ever ask.
    explicit FreeBytes(std::uint32_t streams) : streams_(streams) {}

    std::int64_t take(std::int64_t bytes, const PlannedBuffer& buffer, Online rule) {
        std::size_t chosen = blocks_.size();
        std::int64_t smallest = 0;
        std::size_t first = 0;
        while (first < blocks_.size()) {
            if (!usable(blocks_[first], buffer)) {
                ++first;
                continue;
            }
            std::size_t last = first;
            while (last + 1 < blocks_.size() && blocks_[last + 1].begin == blocks_[last].end &&
                   usable(blocks_[last + 1], buffer))
                ++last;
            const std::int64_t length = blocks_[last].end - blocks_[first].begin;
            if (length >= bytes && (chosen == blocks_.size() || length < smallest)) {
                chosen = first;
                smallest = length;
                if (rule == Online::lowest || length == bytes) break;
            }
            first = last + 1;
        }
        return chosen == blocks_.size() ? grow(bytes, buffer) : cut(chosen, bytes);
    }

    void give(std::int64_t begin, std::int64_t bytes, const PlannedBuffer& buffer) {
        const auto behind = std::lower_bound(blocks_.begin(), blocks_.end(), begin,
                                             [](const Block& block, std::int64_t at) { return block.begin < at; });
        blocks_.insert(behind, {begin, begin + bytes, 0, buffer.needed});
        if (blocks_.size() > limit_) compact();
    }

    [[nodiscard]] std::int64_t size() const { return end_; }

private:
    struct Block {
        std::int64_t begin = 0;
        std::int64_t end = 0;
        std::uint32_t usable_by = 0;  ///< one bit a stream
        StreamOrder::Clock needed{};
    };

    static bool usable(Block& block, const PlannedBuffer& buffer) {
        const std::uint32_t bit = 1U << index(buffer.stream);
        if ((block.usable_by & bit) == 0 && StreamOrder::covers(buffer.known, block.needed)) block.usable_by |= bit;
        return (block.usable_by & bit) != 0;
    }

    /// Joins neighbours that no stream can tell apart any more, and if that leaves too many, those that nobody can tell
    /// apart now: a stream that catches up with one of them may then have to catch up with the other too.
    void compact() {
        join_if([this](const Block& one, const Block& two) {
            return one.needed == two.needed || (one.usable_by & two.usable_by & streams_) == streams_;
        });
        if (blocks_.size() > kManyBlocks)
            join_if([](const Block& one, const Block& two) { return one.usable_by == two.usable_by; });
        limit_ = std::max(kFewBlocks, 2 * blocks_.size());
    }

    template <class Alike>
    void join_if(Alike alike) {
        std::size_t kept = 0;
        for (std::size_t i = 1; i < blocks_.size(); ++i) {
            Block& last = blocks_[kept];
            if (last.end != blocks_[i].begin || !alike(last, blocks_[i])) {
                blocks_[++kept] = blocks_[i];
                continue;
            }
            last.end = blocks_[i].end;
            last.usable_by &= blocks_[i].usable_by;
            for (std::size_t stream = 0; stream < last.needed.size(); ++stream)
                last.needed[stream] = std::max(last.needed[stream], blocks_[i].needed[stream]);
        }
        if (!blocks_.empty()) blocks_.resize(kept + 1);
    }

    /// Takes the first bytes of adjacent blocks from `first` on.
    std::int64_t cut(std::size_t first, std::int64_t bytes) {
        const std::int64_t begin = blocks_[first].begin;
        std::size_t last = first;
        while (blocks_[last].end < begin + bytes) ++last;
        const bool whole = blocks_[last].end == begin + bytes;
        if (!whole) blocks_[last].begin = begin + bytes;
        blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(first),
                      blocks_.begin() + static_cast<std::ptrdiff_t>(last) + (whole ? 1 : 0));
        return begin;
    }

    /// Takes what is free at the end, and more behind it.
    std::int64_t grow(std::int64_t bytes, const PlannedBuffer& buffer) {
        std::int64_t begin = end_;
        while (!blocks_.empty() && blocks_.back().end == begin && usable(blocks_.back(), buffer)) {
            begin = blocks_.back().begin;
            blocks_.pop_back();
        }
        end_ = begin + bytes;
        return begin;
    }

    static constexpr std::size_t kFewBlocks = 64;
    static constexpr std::size_t kManyBlocks = 1024;

    std::uint32_t streams_;
    std::size_t limit_ = kFewBlocks;
    std::vector<Block> blocks_;
    std::int64_t end_ = 0;
};

/// Whether no two buffers that may be in use together share bytes.
bool sound(const std::vector<PlannedBuffer>& buffers, const std::vector<std::int64_t>& offsets) {
    for (std::size_t later = 0; later < buffers.size(); ++later)
        for (std::size_t earlier = 0; earlier < later; ++earlier) {
            const bool apart = offsets[earlier] + placed_bytes(buffers[earlier]) <= offsets[later] ||
                               offsets[later] + placed_bytes(buffers[later]) <= offsets[earlier];
            if (!apart && !may_share(buffers[earlier], buffers[later])) return false;
        }
    return true;
}

}  // namespace

std::int64_t placed_bytes(const PlannedBuffer& buffer) {
    const std::int64_t unit = PlannedMemory::kAlignment.count;
    return (buffer.bytes.count + unit - 1) / unit * unit;
}

Placement place_online(const std::vector<PlannedBuffer>& buffers, Online rule) {
    Placement placement;
    placement.offsets.assign(buffers.size(), 0);
    std::uint32_t streams = 0;
    for (const PlannedBuffer& buffer : buffers) streams |= 1U << index(buffer.stream);
    FreeBytes free(streams);
    const std::vector<std::uint32_t> freed = in_order_of_frees(buffers);
    auto next = freed.begin();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        for (; next != freed.end() && buffers[*next].gone < buffers[i].made; ++next)
            if (const std::int64_t bytes = placed_bytes(buffers[*next]); bytes > 0)
                free.give(placement.offsets[*next], bytes, buffers[*next]);
        if (const std::int64_t bytes = placed_bytes(buffers[i]); bytes > 0)
            placement.offsets[i] = free.take(bytes, buffers[i], rule);
    }
    placement.size = free.size();
    return placement;
}

Placement place_by_size(const std::vector<PlannedBuffer>& buffers) {
    Placement placement;
    placement.offsets.assign(buffers.size(), 0);
    std::vector<std::uint32_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return placed_bytes(buffers[a]) > placed_bytes(buffers[b]);
    });
    std::vector<std::uint32_t> by_address;  // those placed so far
    for (const std::uint32_t number : order) {
        const PlannedBuffer& buffer = buffers[number];
        const std::int64_t bytes = placed_bytes(buffer);
        std::int64_t offset = 0;
        for (const std::uint32_t placed : by_address) {
            if (placement.offsets[placed] >= offset + bytes) break;
            const PlannedBuffer& other = buffers[placed];
            if (number < placed ? may_share(buffer, other) : may_share(other, buffer)) continue;
            offset = std::max(offset, placement.offsets[placed] + placed_bytes(other));
        }
        placement.offsets[number] = offset;
        placement.size = std::max(placement.size, offset + bytes);
        by_address.insert(
            std::upper_bound(by_address.begin(), by_address.end(), offset,
                             [&](std::int64_t at, std::uint32_t other) { return at < placement.offsets[other]; }),
            number);
    }
    return placement;
}

std::optional<Placement> place_alike_by_size(const std::vector<PlannedBuffer>& buffers) {
    std::vector<PlannedBuffer> once;                    // what is outside of microbatches, and the first one's
    std::vector<std::size_t> first;                     // of the first microbatch: places in `once`
    std::vector<std::size_t> place_of(buffers.size());  // in `once`
    std::map<std::int32_t, std::size_t> allocated;      // by microbatch
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const PlannedBuffer& buffer = buffers[i];
        place_of[i] = once.size();
        if (buffer.microbatch > 0) {
            const std::size_t number = allocated[buffer.microbatch]++;
            if (number >= first.size()) return std::nullopt;
            place_of[i] = first[number];
            const PlannedBuffer& alike = once[first[number]];
            if (alike.bytes != buffer.bytes || alike.stream != buffer.stream) return std::nullopt;
            continue;
        }
        if (buffer.microbatch == 0) first.push_back(once.size());
        once.push_back(buffer);
    }
    const Placement placed = place_by_size(once);
    Placement placement{{}, placed.size};
    for (const std::size_t place : place_of) placement.offsets.push_back(placed.offsets[place]);
    if (!sound(buffers, placement.offsets)) return std::nullopt;
    return placement;
}

std::int64_t live_peak(const std::vector<PlannedBuffer>& buffers) {
    const std::vector<std::uint32_t> freed = in_order_of_frees(buffers);
    auto next = freed.begin();
    std::vector<std::uint32_t> held_back;
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const PlannedBuffer& buffer : buffers) {
        for (; next != freed.end() && buffers[*next].gone < buffer.made; ++next) held_back.push_back(*next);
        const auto reusable = std::remove_if(held_back.begin(), held_back.end(), [&](std::uint32_t number) {
            if (!StreamOrder::covers(buffer.known, buffers[number].needed)) return false;
            now -= placed_bytes(buffers[number]);
            return true;
        });
        held_back.erase(reusable, held_back.end());
        now += placed_bytes(buffer);
        peak = std::max(peak, now);
    }
    return peak;
}

}  // namespace stowage::memory
