#include "planner/simulator/unshared_streams.hpp"

#include <algorithm>
#include <bit>

namespace stowage::simulator {

void UnsharedStreams::begin(Tick time) {
    for (Lane& lane : lanes_) {
        lane.done = time;
        lane.busy = 0;
        lane.issued = 0;
        lane.known = 0;
        lane.ends.resize(kHistory);
        lane.deferred.clear();
        lane.head = 0;
        lane.spans.clear();
    }
    events_.clear();
    posted_ = 0;
    ended_ = 0;
}

// ------------------------------------------------------------------------------------------------------------- issuing

/// Behind what waits for a neighbour, or the first that does.
void UnsharedStreams::issue(Stream stream, const Item& item) {
    Lane& lane = lanes_[program::index(stream)];
    if (item.kind == Kind::work || item.kind == Kind::transfer) lane.issued += item.launches;
    lane.deferred.push_back(item);
    if (!resolved(stream)) return;
    deferred_ |= bit(stream);
    resolve_lane(stream);
}

void UnsharedStreams::transfer(Stream stream, PeerChannel& channel, int side, Tick length, Tick issued) {
    issue(stream, {.issued = issued,
                   .length = length,
                   .channel = &channel,
                   .kind = Kind::transfer,
                   .side = static_cast<std::uint8_t>(side)});
}

EventId UnsharedStreams::record(Stream stream, Tick issued) {
    const std::uint64_t event = events_.size();
    events_.push_back(kUnknown);
    issue(stream, {.issued = issued, .event_or_call = event, .kind = Kind::record});
    return static_cast<EventId>(event);
}

void UnsharedStreams::wait(Stream stream, EventId event, Tick issued) {
    issue(stream, {.issued = issued, .event_or_call = static_cast<std::uint64_t>(event), .kind = Kind::wait});
}

void UnsharedStreams::join(Stream stream, Stream other, Tick issued) {
    if (!resolved(stream) || !resolved(other)) return wait(stream, record(other, issued), issued);
    const Tick recorded = reach(other, issued);
    end(other, recorded);
    end(stream, std::max(reach(stream, issued), recorded));
}

// ----------------------------------------------------------------------------------------------------------- resolving

void UnsharedStreams::resolve() {
    for (bool again = true; again;) {
        again = false;
        for (std::uint32_t left = deferred_; left != 0; left &= left - 1)
            again = resolve_lane(static_cast<Stream>(std::countr_zero(left))) || again;
    }
}

/// Result: whether another stream may go on now.
bool UnsharedStreams::resolve_lane(Stream stream) {
    Lane& lane = lanes_[program::index(stream)];
    bool recorded = false;
    for (; lane.head < lane.deferred.size(); ++lane.head) {
        if (!evaluate(stream, lane.deferred[lane.head])) return recorded;
        recorded = recorded || lane.deferred[lane.head].kind == Kind::record;
    }
    lane.deferred.clear();
    lane.head = 0;
    deferred_ &= ~bit(stream);
    return recorded;
}

/// Result: false if what it depends on is not known yet.
bool UnsharedStreams::evaluate(Stream stream, Item& item) {
    switch (item.kind) {
        case Kind::work: {
            const Tick start = reach(stream, item.issued);
            occupy(stream, start, start + item.length, item.launches);
            return true;
        }
        case Kind::record: {
            const Tick time = reach(stream, item.issued);
            events_[item.event_or_call] = time;
            end(stream, time);
            return true;
        }
        case Kind::wait: {
            const Tick time = events_[item.event_or_call];
            if (time == kUnknown) return false;
            end(stream, std::max(reach(stream, item.issued), time));
            return true;
        }
        case Kind::transfer: return evaluate_transfer(stream, item);
    }
    return true;
}

bool UnsharedStreams::evaluate_transfer(Stream stream, Item& item) {
    if (!item.posted) {
        item.reached = reach(stream, item.issued);
        item.event_or_call = item.channel->post(item.side, item.reached);
        item.posted = true;
        ++posted_;
    }
    const auto partner = item.channel->partner_time(item.side, item.event_or_call);
    if (!partner) return false;
    const Tick length = item.length + std::max<Tick>(*partner - item.reached, 0);
    check_length(length);
    occupy(stream, item.reached, item.reached + length, item.launches);
    return true;
}

// ------------------------------------------------------------------------------------------------------------ counting

std::uint64_t UnsharedStreams::progress() const { return posted_ + ended_; }

Tick UnsharedStreams::done() const {
    Tick last = 0;
    for (const Lane& lane : lanes_) last = std::max(last, lane.done);
    return last;
}

Tick UnsharedStreams::host_bound(Tick end) const {
    std::vector<Span> work;
    for (const Lane& lane : lanes_)
        if (&lane != lanes_.data()) work.insert(work.end(), lane.spans.begin(), lane.spans.end());
    std::sort(work.begin(), work.end(), [](const Span& left, const Span& right) { return left.begin < right.begin; });
    Tick bound = 0;
    std::size_t next = 0;
    Tick busy_until = 0;
    const auto add = [&](const Span& starved) {
        Tick from = starved.begin;
        for (;;) {
            from = std::max(from, busy_until);
            if (from >= starved.end) return;
            const Tick to = next < work.size() ? std::min(starved.end, work[next].begin) : starved.end;
            if (to > from) bound += to - from;
            if (to == starved.end) return;
            busy_until = std::max(busy_until, work[next++].end);
        }
    };
    const Lane& main = lanes_[program::index(Stream::main)];
    for (const Span& starved : main.spans) add(starved);
    add({main.done, end});
    return bound;
}

}  // namespace stowage::simulator
