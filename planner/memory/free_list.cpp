#include "planner/memory/free_list.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

constexpr std::size_t kFirstTableSize = 64;
constexpr std::size_t kSpareEmptyBins = 32;  ///< empty bins that are kept whatever the number of the others

}  // namespace

void FreeList::add_to_table(std::int64_t size, std::uint32_t bin) {
    std::size_t slot = slot_of(size);
    while (table_[slot] != kNoBin) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = bin;
}

std::uint32_t FreeList::find_or_add_bin(std::int64_t size) {
    if (const std::uint32_t found = find_bin(size); found != kNoBin) return found;
    if (order_.size() > 2 * filled_bins_ + kSpareEmptyBins) drop_empty_bins();
    const auto bin = static_cast<std::uint32_t>(order_.size());
    if (bins_.size() == order_.size()) bins_.emplace_back();
    bins_[bin].size = size;
    const auto place = std::lower_bound(order_.begin(), order_.end(), size,
                                        [](const Rank& rank, std::int64_t wanted) { return rank.size < wanted; });
    const auto new_rank = static_cast<std::size_t>(place - order_.begin());
    order_.insert(place, Rank{size, bin});
    for (std::size_t i = new_rank; i < order_.size(); ++i) bins_[order_[i].bin].rank = static_cast<std::uint32_t>(i);
    insert_unfilled(new_rank);
    if (2 * order_.size() > table_.size()) {
        table_.assign(std::max(kFirstTableSize, 2 * table_.size()), kNoBin);
        for (const Rank& rank : order_) add_to_table(rank.size, rank.bin);
    } else {
        add_to_table(size, bin);
    }
    return bin;
}

void FreeList::drop_empty_bins() {
    std::size_t kept = 0;
    for (std::size_t bin = 0; bin < order_.size(); ++bin) {
        if (bins_[bin].items.empty()) continue;
        if (bin != kept) std::swap(bins_[kept], bins_[bin]);
        ++kept;
    }
    order_.clear();
    std::fill(table_.begin(), table_.end(), kNoBin);
    for (std::uint32_t bin = 0; bin < kept; ++bin) {
        order_.push_back({bins_[bin].size, bin});
        add_to_table(bins_[bin].size, bin);
    }
    std::sort(order_.begin(), order_.end(), [](const Rank& a, const Rank& b) { return a.size < b.size; });
    std::fill(filled_.begin(), filled_.end(), 0);
    filled_bins_ = 0;
    for (std::uint32_t rank = 0; rank < kept; ++rank) {
        bins_[order_[rank].bin].rank = rank;
        set_filled(rank);
    }
}

/// The bits from `rank` on move up by one.
void FreeList::insert_unfilled(std::size_t rank) {
    if (order_.size() > kWord * filled_.size()) filled_.push_back(0);
    const std::size_t first = rank / kWord;
    for (std::size_t word = filled_.size() - 1; word > first; --word)
        filled_[word] = filled_[word] << 1U | filled_[word - 1] >> (kWord - 1);
    const std::uint64_t below = (std::uint64_t{1} << (rank % kWord)) - 1;
    filled_[first] = (filled_[first] & below) | (filled_[first] & ~below) << 1U;
}

/// The first bin at or behind `rank` that has items; the number of bins if none has.
std::size_t FreeList::next_filled(std::size_t rank) const {
    if (rank >= order_.size()) return order_.size();
    std::size_t word = rank / kWord;
    std::uint64_t bits = filled_[word] & ~((std::uint64_t{1} << (rank % kWord)) - 1);
    while (bits == 0) {
        if (++word == filled_.size()) return order_.size();
        bits = filled_[word];
    }
    return kWord * word + static_cast<std::size_t>(std::countr_zero(bits));
}

void FreeList::insert_within(std::vector<Item>& items, const Entry& entry) {
    const auto place = std::lower_bound(items.begin(), items.end(), entry.address,
                                        [](const Item& item, Address address) { return item.address > address; });
    items.insert(place, {entry.address, entry.block});
}

void FreeList::erase_within(std::vector<Item>& items, Address address) {
    const auto place = std::lower_bound(items.begin(), items.end(), address,
                                        [](const Item& item, Address wanted) { return item.address > wanted; });
    STOWAGE_CHECK(place != items.end() && place->address == address, "no free block at that address");
    items.erase(place);
}

FreeList::Entry FreeList::last_of(const Bin& bin) {
    return {Bytes{bin.size}, bin.items.back().address, bin.items.back().block};
}

std::optional<FreeList::Entry> FreeList::best_fit(Bytes size) const {
    if (filled_bins_ == 0) return std::nullopt;
    const std::uint32_t exact = find_bin(size.count);
    if (exact != kNoBin && !bins_[exact].items.empty()) return last_of(bins_[exact]);
    std::size_t rank = 0;
    if (exact != kNoBin)
        rank = bins_[exact].rank;
    else
        rank = static_cast<std::size_t>(
            std::lower_bound(order_.begin(), order_.end(), size.count,
                             [](const Rank& candidate, std::int64_t wanted) { return candidate.size < wanted; }) -
            order_.begin());
    rank = next_filled(rank);
    return rank < order_.size() ? std::optional(last_of(bins_[order_[rank].bin])) : std::nullopt;
}

std::optional<FreeList::Entry> FreeList::after(const Entry& entry) const {
    const std::uint32_t bin = find_bin(entry.size.count);
    STOWAGE_CHECK(bin != kNoBin, "no free block of that size");
    const std::vector<Item>& items = bins_[bin].items;
    const auto place = std::lower_bound(items.begin(), items.end(), entry.address,
                                        [](const Item& item, Address wanted) { return item.address > wanted; });
    if (place != items.begin()) return Entry{entry.size, std::prev(place)->address, std::prev(place)->block};
    return best_fit(Bytes{entry.size.count + 1});
}

std::optional<FreeList::Entry> FreeList::largest() const {
    for (auto rank = order_.rbegin(); rank != order_.rend(); ++rank) {
        const Bin& bin = bins_[rank->bin];
        if (!bin.items.empty()) return Entry{Bytes{bin.size}, bin.items.front().address, bin.items.front().block};
    }
    return std::nullopt;
}

std::vector<FreeList::Entry> FreeList::entries() const {
    std::vector<Entry> all;
    for (const Rank& rank : order_) {
        const std::vector<Item>& items = bins_[rank.bin].items;
        for (auto item = items.rbegin(); item != items.rend(); ++item)
            all.push_back({Bytes{rank.size}, item->address, item->block});
    }
    return all;
}

void FreeList::clear() {
    for (Bin& bin : bins_) bin.items.clear();
    order_.clear();
    std::fill(table_.begin(), table_.end(), kNoBin);
    std::fill(filled_.begin(), filled_.end(), 0);
    filled_bins_ = 0;
}

}  // namespace stowage::memory
