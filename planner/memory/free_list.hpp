#pragma once

// The free blocks of one stream and one pool class, in the order (size, address).
//
// Training asks for the same few sizes over and over, so blocks of one size share a bin and the common request is one
// hash look-up and a pop. A bin keeps its addresses falling: the block that best fit takes, the lowest, is the last
// one, and the frees of a backward pass, which run against the order of allocation, land there too. A request that no
// bin serves exactly walks the list of bins by size. Bins that run empty stay, since their size will return; when they
// outnumber the others they are dropped together.
//
// Limits: a bin with thousands of blocks freed in rising order of address shifts them at each insertion.
// Tested by: tests/planner/memory/free_list_test.cpp, against an ordered set.

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/device_memory.hpp"
#include "scenarios/types/bytes.hpp"

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

    /// Cost: O(log + shift) of the bin of that size.
    void insert(Entry entry);
    /// Throws: std::logic_error if no such entry is there.
    void erase(Bytes size, Address address);
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
    };
    struct Rank {
        std::int64_t size;
        std::uint32_t bin;
    };

    [[nodiscard]] std::uint32_t find_bin(std::int64_t size) const;
    std::uint32_t find_or_add_bin(std::int64_t size);
    [[nodiscard]] std::size_t slot_of(std::int64_t size) const;
    void add_to_table(std::int64_t size, std::uint32_t bin);
    void drop_empty_bins();
    [[nodiscard]] static Entry last_of(const Bin& bin);

    static constexpr std::uint32_t kNoBin = 0xFFFFFFFF;
    std::vector<Bin> bins_;             ///< in order of appearance; those beyond order_.size() are spare
    std::vector<Rank> order_;           ///< bins by rising size, empty ones too
    std::vector<std::uint32_t> table_;  ///< open addressing by size, a power of two of slots, at most half full
    std::size_t filled_bins_ = 0;
};

}  // namespace stowage::memory
