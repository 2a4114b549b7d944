#pragma once

// Pinned host memory in one piece: as many bytes as the buffers that live at one time need, and no more.
//
// What a step offloads is known before it runs: how large each buffer is, when it is acquired and when it is released.
// So each gets a fixed offset in one arena, and two buffers share bytes only if the first is released before the second
// is acquired. Nothing is rounded to a power of two, nothing is kept for a shape that returns later, and the system is
// asked once.
//
// The smallest arena is hard to find in general, but the most bytes that live at one time bound it from below, and
// offloading meets that bound nearly always: what a microbatch offloads last comes back first, and microbatches are
// alike. Buffers are placed one after the other at the lowest offset (or in the smallest gap) that is free as long as
// they live, in the order in which they are acquired and, if there are few, also by falling size; the smallest result
// is kept, and `exact()` says whether it is the bound.
//
// Worked example: A of 24 MiB lives from 0 to 3, B of 8 MiB from 1 to 2, C of 16 MiB from 4 to 5. A lies at 0, B at 24
// MiB, C at 0: 32 MiB, what A and B need. PyTorch's allocator would hold 32 + 8 + 16 MiB for three shapes.
//
// Tested by: tests/planner/memory/pinned_arena_test.cpp, against every placement of a few buffers.

#include <cstdint>
#include <limits>
#include <vector>

#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

using types::Bytes;

/// One buffer: it lives in [acquired, released), on any clock that counts the step's events.
struct PinnedUse {
    Bytes bytes;
    std::uint64_t acquired = 0;
    std::uint64_t released = std::numeric_limits<std::uint64_t>::max();  ///< the default: until the end
};

class PinnedArena {
public:
    /// Offsets are multiples of this: what a copy engine reads at full rate.
    static constexpr Bytes kAlignment{512};
    /// Up to this many buffers are placed by falling size too, which takes time by their square.
    static constexpr std::size_t kFew = 256;

    /// An empty arena.
    PinnedArena() = default;
    /// Places every buffer. Cost: O(N log N) and O(gaps) a buffer; O(N^2 log N) for few. The same uses in the same
    /// order give the same offsets. Throws: std::logic_error if a buffer has no bytes or no life.
    explicit PinnedArena(const std::vector<PinnedUse>& uses);

    /// What is taken from the system.
    [[nodiscard]] Bytes size() const { return size_; }
    /// The most bytes, each buffer's rounded up to the alignment, that live at one time: no arena is smaller.
    [[nodiscard]] Bytes live_peak() const { return live_peak_; }
    /// Whether no smaller arena exists, which is certain at the bound only.
    [[nodiscard]] bool exact() const { return size_ == live_peak_; }
    /// Of the buffer with this number in `uses`.
    [[nodiscard]] Bytes offset(std::size_t number) const { return offsets_.at(number); }
    [[nodiscard]] std::size_t buffers() const { return offsets_.size(); }

private:
    Bytes size_;
    Bytes live_peak_;
    std::vector<Bytes> offsets_;
};

/// Collects the uses of a step in the order in which they happen.
class PinnedLedger {
public:
    /// Result: the number of the buffer.
    std::size_t acquire(Bytes bytes) {
        uses_.push_back({.bytes = bytes, .acquired = clock_++});
        return uses_.size() - 1;
    }
    void release(std::size_t number) { uses_.at(number).released = clock_++; }
    [[nodiscard]] const std::vector<PinnedUse>& uses() const { return uses_; }

private:
    std::vector<PinnedUse> uses_;
    std::uint64_t clock_ = 0;
};

}  // namespace stowage::memory
