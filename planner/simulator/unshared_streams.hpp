#pragma once

// The streams of a device on which no piece of work slows another: kernels on one stream, collectives, transfers, no
// copies. When a piece starts and ends then follows from what is before it on its stream, its issue and the events it
// waits for, by additions and maxima, and is known as soon as those are: nothing has to pass from moment to moment as
// on VirtualDevice, of which this is the special case. What waits for a neighbour's half of a transfer is kept in order
// and worked off when that half is there.
//
// Worked example: kernels of 10 us issued at 1 and 2 us end at 11 and 21 us, known at their issue.
//
// Tested by: tests/planner/simulator/unshared_rank_test.cpp, against VirtualDevice.

#include <array>
#include <cstdint>
#include <vector>

#include "planner/simulator/peer_channel.hpp"
#include "planner/simulator/virtual_device.hpp"

namespace stowage::simulator {

class UnsharedStreams {
public:
    /// Every stream is done with what it had at `time`; forgets all events.
    void begin(Tick time);

    // What the host issues. `issued` never decreases.
    /// `launches`: as of VirtualDevice::compute.
    void work(Stream stream, Tick length, Tick issued, std::uint16_t launches = 1);
    void transfer(Stream stream, PeerChannel& channel, int side, Tick length, Tick issued);
    EventId record(Stream stream, Tick issued);
    void wait(Stream stream, EventId event, Tick issued);
    /// `stream` waits for all that `other` has: a record and a wait.
    void join(Stream stream, Stream other, Tick issued);

    /// Works off what has come to be known.
    void resolve();
    /// Whether it is known when everything on the stream is done.
    [[nodiscard]] bool resolved(Stream stream) const { return (deferred_ & bit(stream)) == 0; }
    [[nodiscard]] bool resolved() const { return deferred_ == 0; }
    /// When it is done.
    [[nodiscard]] Tick done(Stream stream) const { return lanes_[program::index(stream)].done; }
    [[nodiscard]] Tick done() const;
    /// Launches of the work issued to the stream since `begin`, and how many of them have a known end. Events take no
    /// place in its queue.
    [[nodiscard]] std::uint64_t issued(Stream stream) const { return lanes_[program::index(stream)].issued; }
    [[nodiscard]] std::uint64_t known(Stream stream) const { return lanes_[program::index(stream)].known; }
    /// When the work of launch `number` of the stream ended; one of the last kHistory that are known.
    [[nodiscard]] Tick end_of(Stream stream, std::uint64_t number) const {
        return lanes_[program::index(stream)].ends[number % kHistory];
    }
    static constexpr std::size_t kHistory = 1U << 11U;

    [[nodiscard]] Tick busy(Stream stream) const { return lanes_[program::index(stream)].busy; }
    /// From the begin to `end`: the main stream has nothing issued to it, and no stream works. Cost: O(pieces) since
    /// the begin.
    [[nodiscard]] Tick host_bound(Tick end) const;
    /// Grows whenever something becomes known.
    [[nodiscard]] std::uint64_t progress() const;

private:
    enum class Kind : std::uint8_t { work, transfer, record, wait };
    struct Item {
        Tick issued = 0;
        Tick length = 0;
        std::uint64_t event_or_call = 0;
        PeerChannel* channel = nullptr;
        Kind kind{};
        std::uint8_t side = 0;
        std::uint16_t launches = 1;
        bool posted = false;
        Tick reached = 0;
    };
    struct Span {
        Tick begin = 0;
        Tick end = 0;
    };
    struct Lane {
        Tick done = 0;
        Tick busy = 0;
        std::uint64_t issued = 0;
        std::uint64_t known = 0;
        std::vector<Tick> ends;      ///< a ring
        std::vector<Item> deferred;  ///< from `head` on
        std::size_t head = 0;
        std::vector<Span> spans;  ///< when it worked; of the main stream: when it had nothing issued to it
    };

    static constexpr Tick kUnknown = -1;
    static constexpr std::uint32_t bit(Stream stream) { return 1U << static_cast<unsigned>(stream); }

    static constexpr bool is_main(Stream stream) { return stream == Stream::main; }

    void issue(Stream stream, const Item& item);
    bool evaluate(Stream stream, Item& item);
    bool evaluate_transfer(Stream stream, Item& item);
    bool resolve_lane(Stream stream);
    Tick reach(Stream stream, Tick issued);
    void occupy(Stream stream, Tick from, Tick to, std::uint16_t launches);
    void end(Stream stream, Tick time);

    std::array<Lane, program::kStreamCount> lanes_;
    std::uint32_t deferred_ = 0;  ///< bit s: stream s has items that wait for a neighbour
    std::vector<Tick> events_;    ///< kUnknown until known
    std::uint64_t posted_ = 0;    ///< transfers
    std::uint64_t ended_ = 0;     ///< items with a known end
};

/// When the next item of the stream is at its head and issued.
inline Tick UnsharedStreams::reach(Stream stream, Tick issued) {
    Lane& lane = lanes_[program::index(stream)];
    if (issued <= lane.done) return lane.done;
    if (is_main(stream)) lane.spans.push_back({lane.done, issued});
    return issued;
}

inline void UnsharedStreams::end(Stream stream, Tick time) {
    Lane& lane = lanes_[program::index(stream)];
    lane.done = time;
    ++ended_;
}

inline void UnsharedStreams::occupy(Stream stream, Tick from, Tick to, std::uint16_t launches) {
    Lane& lane = lanes_[program::index(stream)];
    lane.busy += to - from;
    if (!is_main(stream)) lane.spans.push_back({from, to});
    end(stream, to);
    for (std::uint16_t i = 0; i < launches; ++i) lane.ends[lane.known++ % kHistory] = to;
}

inline void UnsharedStreams::work(Stream stream, Tick length, Tick issued, std::uint16_t launches) {
    if (!resolved(stream))
        return issue(stream, {.issued = issued, .length = length, .kind = Kind::work, .launches = launches});
    lanes_[program::index(stream)].issued += launches;
    const Tick start = reach(stream, issued);
    occupy(stream, start, start + length, launches);
}

}  // namespace stowage::simulator
