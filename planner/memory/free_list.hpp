#pragma once

// The free blocks of one stream and one pool class, in the order (size, address).
//
// Training asks for the same few sizes over and over, so blocks of one size share a bin and the common request is one
// hash look-up and a pop. The bin that an entry went to is told, as a guess that saves the look-up when the block comes
// back with the same size. A bin keeps its addresses falling: the block that best fit takes, the lowest, is the last
// one, and the frees of a backward pass, which run against the order of allocation, land there too. For a request that
// no bin serves exactly a bit for each bin, in the order of their sizes, says which is the next that has a block. Bins
// that run empty stay, since their size will return; when they outnumber the others they are dropped together.
//
// Limits: a bin with thousands of blocks freed in rising order of address shifts them at each insertion.
// Tested by: tests/planner/memory/free_list_test.cpp, against an ordered set.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/device_memory.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {

/// The place of a block's node in its allocator.
using BlockIndex = std::uint32_t;
inline constexpr BlockIndex kNoBlock = 0xFFFFFFFF;

class FreeList {
public:
    struct Entry {
        Bytes size;
        Address address = 0;
        BlockIndex block = kNoBlock;
    };

    /// Where an entry was put: good until bins are dropped, and checked where it is used.
    using Guess = std::uint32_t;
    static constexpr Guess kNoGuess = 0xFFFFFFFF;

    /// Cost: O(log + shift) of the bin of that size; O(1) below all others of it.
    Guess insert(Entry entry, Guess guess = kNoGuess) {
        if (!is_bin_of(guess, entry.size.count)) guess = find_or_add_bin(entry.size.count);
        std::vector<Item>& items = bins_[guess].items;
        if (items.empty()) set_filled(bins_[guess].rank);
        if (items.empty() || entry.address < items.back().address)
            items.push_back({entry.address, entry.block});
        else
            insert_within(items, entry);
        return guess;
    }
    /// Throws: std::logic_error if no such entry is there.
    void erase(Bytes size, Address address, Guess guess = kNoGuess) {
        if (!is_bin_of(guess, size.count)) guess = find_bin(size.count);
        STOWAGE_CHECK(guess != kNoBin && !bins_[guess].items.empty(), "no free block of that size");
        std::vector<Item>& items = bins_[guess].items;
        if (items.back().address == address)
            items.pop_back();
        else
            erase_within(items, address);
        if (items.empty()) clear_filled(bins_[guess].rank);
    }
    /// Takes the first entry of exactly `size` bytes out; kNoBlock if there is none.
    BlockIndex take_exact(Bytes size) {
        const std::uint32_t bin = find_bin(size.count);
        if (bin == kNoBin || bins_[bin].items.empty()) return kNoBlock;
        std::vector<Item>& items = bins_[bin].items;
        const BlockIndex block = items.back().block;
        items.pop_back();
        if (items.empty()) clear_filled(bins_[bin].rank);
        return block;
    }
    /// The first entry of at least `size` bytes: smallest, then lowest.
    [[nodiscard]] std::optional<Entry> best_fit(Bytes size) const;
    /// The entry behind `entry`, which is in the list, in the order.
    [[nodiscard]] std::optional<Entry> after(const Entry& entry) const;
    /// The last entry in the order.
    [[nodiscard]] std::optional<Entry> largest() const;
    /// Every entry in the order.
    [[nodiscard]] std::vector<Entry> entries() const;
    void clear();

private:
    struct Item {
        Address address;
        BlockIndex block;
    };
    struct Bin {
        std::int64_t size = 0;
        std::vector<Item> items;  ///< by falling address
        std::uint32_t rank = 0;   ///< its place in the order by size
    };
    struct Rank {
        std::int64_t size;
        std::uint32_t bin;
    };

    [[nodiscard]] bool is_bin_of(Guess guess, std::int64_t size) const {
        return guess < order_.size() && bins_[guess].size == size;
    }
    [[nodiscard]] std::size_t slot_of(std::int64_t size) const {
        // Fibonacci hashing; sizes are multiples of 512, so the low bits say nothing.
        const std::uint64_t mixed = static_cast<std::uint64_t>(size) * 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(mixed >> 32) & (table_.size() - 1);
    }
    [[nodiscard]] std::uint32_t find_bin(std::int64_t size) const {
        if (table_.empty()) return kNoBin;
        for (std::size_t slot = slot_of(size);; slot = (slot + 1) & (table_.size() - 1)) {
            const std::uint32_t bin = table_[slot];
            if (bin == kNoBin || bins_[bin].size == size) return bin;
        }
    }
    static void insert_within(std::vector<Item>& items, const Entry& entry);
    static void erase_within(std::vector<Item>& items, Address address);
    std::uint32_t find_or_add_bin(std::int64_t size);
    void add_to_table(std::int64_t size, std::uint32_t bin);
    void drop_empty_bins();
    void set_filled(std::uint32_t rank) {
        ++filled_bins_;
        filled_[rank / kWord] |= std::uint64_t{1} << (rank % kWord);
    }
    void clear_filled(std::uint32_t rank) {
        --filled_bins_;
        filled_[rank / kWord] &= ~(std::uint64_t{1} << (rank % kWord));
    }
    void insert_unfilled(std::size_t rank);
    [[nodiscard]] std::size_t next_filled(std::size_t rank) const;
    [[nodiscard]] static Entry last_of(const Bin& bin);

    static constexpr std::uint32_t kNoBin = kNoGuess;
    static constexpr std::size_t kWord = 64;
    std::vector<Bin> bins_;              ///< in order of appearance; those beyond order_.size() are spare
    std::vector<Rank> order_;            ///< bins by rising size, empty ones too
    std::vector<std::uint32_t> table_;   ///< open addressing by size, a power of two of slots, at most half full
    std::vector<std::uint64_t> filled_;  ///< bit r of all words together: bin order_[r] has items
    std::size_t filled_bins_ = 0;
};

}  // namespace stowage::memory
