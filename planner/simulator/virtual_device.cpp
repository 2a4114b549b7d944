#include "planner/simulator/virtual_device.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "scenarios/types/check.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::simulator {
namespace {

constexpr int number(Stream stream) { return static_cast<int>(stream); }
constexpr std::uint32_t bit(int stream) { return 1U << static_cast<unsigned>(stream); }

/// Calls `act` for each set bit, lowest first.
template <class Act>
void for_each_bit(std::uint32_t mask, Act&& act) {
    for (; mask != 0; mask &= mask - 1) act(std::countr_zero(mask));
}

constexpr auto kGemm = static_cast<std::uint8_t>(types::KernelClass::gemm);
constexpr std::uint32_t kCopyStreams = bit(number(Stream::d2h)) | bit(number(Stream::h2d)) |
                                       bit(number(Stream::graph_d2h)) | bit(number(Stream::graph_h2d));

constexpr Tick kLongestRun = Tick{1} << 60;  // 36 years: no sum of ticks overflows

[[noreturn]] void refuse_length() {
    throw types::UnsupportedError(
        "a step that takes hours cannot be simulated\n"
        "hint: look at the sizes of the model and the batch, and at the hardware's rates");
}

}  // namespace

void check_length(Tick length) {
    if (length > kLongestWork) refuse_length();
}

void check_moment(Tick moment) {
    if (moment > kLongestRun) refuse_length();
}

VirtualDevice::VirtualDevice(const types::CopyEngines& engines, bool interference) : kernels_take_turns_(interference) {
    auto slowed = [&](double slowdown) {
        return interference ? static_cast<std::int64_t>(std::llround(static_cast<double>(kFull) / (1 + slowdown)))
                            : kFull;
    };
    for (int kind = 0; kind < types::kKernelClassCount; ++kind) {
        const types::Slowdown& slowdown = engines.slowdown[kind];
        kernel_speed_[static_cast<std::size_t>(kind)] = {kFull, slowed(slowdown.under_d2h), slowed(slowdown.under_h2d),
                                                         slowed(slowdown.under_both)};
    }
    auto shared = [&](double share) {
        return interference ? static_cast<std::int64_t>(std::llround(static_cast<double>(kFull) * share)) : kFull;
    };
    copy_speed_[0] = {kFull, shared(engines.duplex_device_to_host)};
    copy_speed_[1] = {kFull, shared(engines.duplex_host_to_device)};
}

// --------------------------------------------------------------------------------------------------------------
// issuing

VirtualDevice::Item& VirtualDevice::push(Stream stream, Kind kind, Tick issued) {
    Queue& queue = queues_[program::index(stream)];
    if (queue.empty()) {
        queue.items.clear();
        queue.head = 0;
    }
    STOWAGE_CHECK(issued >= now_, "the host issues in the past of its device");
    check_moment(issued);
    queued_ |= bit(number(stream));
    if (kind != Kind::record && kind != Kind::wait) ++queue.launches;
    Item& item = queue.items.emplace_back();
    item.kind = kind;
    item.issued = issued;
    return item;
}

void VirtualDevice::compute(Stream stream, types::KernelClass kind, Tick length, Tick issued, std::uint64_t tag,
                            std::uint16_t launches) {
    Item& item = push(stream, Kind::compute, issued);
    queues_[program::index(stream)].launches += launches - std::size_t{1};
    item.launches = launches;
    item.length = length;
    item.tag_or_event = tag;
    item.detail = static_cast<std::uint8_t>(kind);
}

void VirtualDevice::copy(Stream stream, Direction direction, std::int64_t bytes, Tick length, Tick issued,
                         std::uint64_t tag) {
    Item& item = push(stream, Kind::copy, issued);
    item.length = length;
    item.tag_or_event = tag;
    item.bytes = bytes;
    item.detail = static_cast<std::uint8_t>(direction);
}

void VirtualDevice::communicate(Stream stream, Tick length, Tick issued, std::uint64_t tag) {
    Item& item = push(stream, Kind::communicate, issued);
    item.length = length;
    item.tag_or_event = tag;
}

void VirtualDevice::transfer(Stream stream, PeerChannel& channel, int side, Tick length, Tick issued,
                             std::uint64_t tag) {
    Item& item = push(stream, Kind::transfer, issued);
    item.length = length;
    item.tag_or_event = tag;
    item.channel = &channel;
    item.detail = static_cast<std::uint8_t>(side);
}

EventId VirtualDevice::record(Stream stream, Tick issued) {
    const std::uint64_t event = events_base_ + events_.size();
    events_.push_back({-1, stream});
    push(stream, Kind::record, issued).tag_or_event = event;
    return static_cast<EventId>(event);
}

void VirtualDevice::wait(Stream stream, EventId event, Tick issued) {
    push(stream, Kind::wait, issued).tag_or_event = static_cast<std::uint64_t>(event);
}

// -------------------------------------------------------------------------------------------------------------- asking

bool VirtualDevice::completed(EventId event) const {
    const auto handle = static_cast<std::uint64_t>(event);
    return handle < events_base_ || events_[handle - events_base_].time >= 0;
}

std::size_t VirtualDevice::pending(Stream stream) const {
    const bool running = (active_ & bit(number(stream))) != 0;
    return queues_[program::index(stream)].size() + (running ? 1 : 0);
}

void VirtualDevice::forget_events() {
    STOWAGE_CHECK(idle(), "events are forgotten only while nothing waits for them");
    events_base_ += events_.size();
    events_.clear();
}

bool VirtualDevice::advance_to(Tick time) {
    if (time <= now_ && queued_ == 0) return true;
    return run(std::max(time, now_), 0);
}

bool VirtualDevice::advance_one() {
    settle();
    if (speeds_stale_) update_speeds();
    const Tick next = next_moment();
    if (next == kNever) return blocked_until_ == kNever;
    return run(next, 0);
}

Tick VirtualDevice::earliest_change() const { return std::min(next_moment(), blocked_change_); }

bool VirtualDevice::drain(Stream stream) { return run(kNever, bit(number(stream))); }

bool VirtualDevice::drain_all() {
    host_waits_ = true;
    const bool done = run(kNever, bit(program::kStreamCount) - 1);
    host_waits_ = false;
    return done;
}

// --------------------------------------------------------------------------------------------------------- moving time

bool VirtualDevice::run(Tick limit, std::uint32_t until_drained) {
    for (;;) {
        settle();
        if (until_drained != 0 && ((active_ | queued_) & until_drained) == 0) return true;
        if (speeds_stale_) update_speeds();
        const Tick next = std::min(next_moment(), limit);
        if (next > blocked_until_) {
            pass_to(std::max(now_, blocked_until_));
            return false;
        }
        STOWAGE_CHECK(next != kNever, "a stream waits for an event that nothing will reach");
        STOWAGE_CHECK(next >= now_, "time goes back");
        pass_to(next);
        bool finished_one = false;
        for_each_bit(active_, [&](int stream) {
            if (running_[static_cast<std::size_t>(stream)].finish > now_) return;
            finish(stream);
            finished_one = true;
            ++moments_;
        });
        // What was issued at this very moment still starts.
        if (now_ == limit && !finished_one) {
            settle();
            return true;
        }
    }
}

void VirtualDevice::pass_to(Tick time) {
    if (time > now_) ++moments_;
    account(time);
    now_ = time;
}

/// Starts all that can start now, and notes how long transfers that cannot will wait for their partners at least.
void VirtualDevice::settle() {
    blocked_until_ = kNever;
    blocked_change_ = kNever;
    bool again = true;
    while (again) {
        again = false;
        for_each_bit(queued_ & ~active_, [&](int stream) { again = settle_stream(stream) || again; });
    }
    start_ready_copies();
    start_ready_kernels();
}

/// Result: whether an event was recorded, which may release another stream.
bool VirtualDevice::settle_stream(int stream) {
    Queue& queue = queues_[static_cast<std::size_t>(stream)];
    bool recorded = false;
    while (!queue.empty()) {
        Item& item = queue.items[queue.head];
        if (item.issued > now_) break;
        if (item.kind == Kind::record) {
            events_[item.tag_or_event - events_base_].time = now_;
            recorded = true;
            pop(stream);
        } else if (item.kind == Kind::wait) {
            if (!completed(static_cast<EventId>(item.tag_or_event))) break;
            pop(stream);
        } else if (item.kind == Kind::transfer) {
            if (!start_transfer(item)) {
                waiting_transfers_ |= bit(stream);
                break;
            }
            waiting_transfers_ &= ~bit(stream);
            start(stream, item);
            break;
        } else {
            if (item.kind == Kind::copy)
                await_engine(stream);
            else if (item.kind == Kind::compute && kernels_take_turns_)
                await_turn(stream);
            else
                start(stream, item);
            break;
        }
    }
    return recorded;
}

/// The kernel at the head of the stream is ready.
void VirtualDevice::await_turn(int stream) {
    if ((waiting_kernels_ & bit(stream)) != 0) return;
    waiting_kernels_ |= bit(stream);
    kernel_ready_[static_cast<std::size_t>(stream)] = now_;
}

/// The copy at the head of the stream is ready.
void VirtualDevice::await_engine(int stream) {
    std::uint32_t& waiting = waiting_copies_[head(stream).detail];
    if ((waiting & bit(stream)) != 0) return;
    waiting |= bit(stream);
    copy_ready_[static_cast<std::size_t>(stream)] = now_;
}

const VirtualDevice::Item& VirtualDevice::head(int stream) const {
    const Queue& queue = queues_[static_cast<std::size_t>(stream)];
    return queue.items[queue.head];
}

/// An idle engine goes on with the stream that it served last, or turns to the one whose copy was ready first.
void VirtualDevice::start_ready_copies() {
    for (std::size_t direction = 0; direction < 2; ++direction) {
        std::uint32_t& waiting = waiting_copies_[direction];
        if (waiting == 0 || copies_[direction] > 0) continue;
        const auto rank = [&](int stream) {
            return std::tuple(stream != engine_stream_[direction], copy_ready_[static_cast<std::size_t>(stream)],
                              head(stream).issued);
        };
        int next = std::countr_zero(waiting);
        for_each_bit(waiting, [&](int stream) { next = rank(stream) < rank(next) ? stream : next; });
        waiting &= ~bit(next);
        engine_stream_[direction] = next;
        start(next, head(next));
    }
}

/// Starts the kernels whose turn it is: the one that was ready first, or that the host issued first, goes first.
void VirtualDevice::start_ready_kernels() {
    const auto rank = [&](int stream) {
        return std::pair(kernel_ready_[static_cast<std::size_t>(stream)], head(stream).issued);
    };
    while (waiting_kernels_ != 0) {
        int next = std::countr_zero(waiting_kernels_);
        for_each_bit(waiting_kernels_, [&](int stream) { next = rank(stream) < rank(next) ? stream : next; });
        if (kernels_ > 0 && (gemm_runs_ || head(next).detail == kGemm)) return;
        waiting_kernels_ &= ~bit(next);
        start(next, head(next));
    }
}

/// Posts the transfer and, once the partner has posted, turns its length into the time from now to its end.
bool VirtualDevice::start_transfer(Item& item) {
    if (!item.posted) {
        item.call = item.channel->post(item.detail, now_);
        item.posted = true;
        item.reached = now_;
        ++moments_;
    }
    const auto partner = item.channel->partner_time(item.detail, item.call);
    if (!partner) {
        const Tick clock = item.channel->partner_clock(item.detail);
        blocked_until_ = std::min(blocked_until_, clock);
        blocked_change_ = std::min(blocked_change_, std::max(clock, now_) + item.length);
        return false;
    }
    item.length += std::max<Tick>(*partner - now_, 0);
    return true;
}

void VirtualDevice::start(int stream, const Item& item) {
    check_length(item.length);
    Running& running = running_[static_cast<std::size_t>(stream)];
    running.item = item;
    running.start = item.kind == Kind::transfer ? item.reached : now_;
    running.remaining = item.length << kShift;
    running.updated = now_;
    active_ |= bit(stream);
    if (item.kind == Kind::copy) {
        if (copies_[item.detail]++ == 0 && copies_until_[item.detail] != now_) copies_since_[item.detail] = now_;
        speeds_stale_ = true;
    } else if (item.kind == Kind::compute) {
        gemm_runs_ = item.detail == kGemm;
        if (++kernels_ > 1) speeds_stale_ = true;
    }
    set_speed(running);
    pop(stream);
}

void VirtualDevice::pop(int stream) {
    Queue& queue = queues_[static_cast<std::size_t>(stream)];
    ++queue.head;
    if (queue.empty()) queued_ &= ~bit(stream);
}

std::int64_t VirtualDevice::speed_of(const Item& item) const {
    if (item.kind == Kind::copy) {
        const auto direction = static_cast<std::size_t>(item.detail);
        return copy_speed_[direction][copies_[1 - direction] > 0 ? 1 : 0];
    }
    if (item.kind != Kind::compute) return kFull;
    const std::int64_t speed = kernel_speed_[item.detail][(copies_[0] > 0 ? 1U : 0U) + (copies_[1] > 0 ? 2U : 0U)];
    return kernels_take_turns_ ? speed / kernels_ : speed;
}

/// Brings what is left of a piece up to now and sets how fast it goes on.
void VirtualDevice::set_speed(Running& running) {
    running.remaining -= running.speed * (now_ - running.updated);
    running.updated = now_;
    running.speed = speed_of(running.item);
    const std::int64_t left = running.speed == kFull ? (running.remaining + kFull - 1) >> kShift
                                                     : (running.remaining + running.speed - 1) / running.speed;
    running.finish = now_ + left;
}

void VirtualDevice::update_speeds() {
    speeds_stale_ = false;
    for_each_bit(active_, [&](int stream) { set_speed(running_[static_cast<std::size_t>(stream)]); });
}

Tick VirtualDevice::next_moment() const {
    Tick next = kNever;
    for_each_bit(active_,
                 [&](int stream) { next = std::min(next, running_[static_cast<std::size_t>(stream)].finish); });
    for_each_bit(queued_ & ~active_, [&](int stream) {
        const Queue& queue = queues_[static_cast<std::size_t>(stream)];
        const Tick issued = queue.items[queue.head].issued;
        if (issued > now_) next = std::min(next, issued);
    });
    return next;
}

bool VirtualDevice::main_waits_for_copy() const {
    constexpr auto kMain = static_cast<std::size_t>(Stream::main);
    if ((active_ & bit(number(Stream::main))) != 0) return running_[kMain].item.kind == Kind::copy;
    const Queue& queue = queues_[kMain];
    if (queue.empty()) return host_waits_ && (active_ & ~kCopyStreams) == 0 && (active_ & kCopyStreams) != 0;
    const Item& next = queue.items[queue.head];
    if (next.kind == Kind::copy && next.issued <= now_) return true;  // for the engine
    const std::optional<Stream> source = awaited_by(Stream::main);
    if (!source) return false;
    // A graph that has not begun may itself wait for the copies of the one before it.
    const bool graph = *source == Stream::graph && (active_ & bit(number(Stream::graph))) == 0;
    const std::optional<Stream> behind = graph ? awaited_by(Stream::graph) : source;
    return behind && (bit(number(*behind)) & kCopyStreams) != 0;
}

/// The stream whose event the head of a stream waits for.
std::optional<Stream> VirtualDevice::awaited_by(Stream stream) const {
    const Queue& queue = queues_[program::index(stream)];
    if (queue.empty()) return std::nullopt;
    const Item& head = queue.items[queue.head];
    if (head.kind != Kind::wait || head.issued > now_) return std::nullopt;
    return events_[head.tag_or_event - events_base_].source;
}

void VirtualDevice::account(Tick until) {
    const Tick passed = until - now_;
    if (passed == 0) return;
    if (main_waits_for_copy()) counters_.exposed_copy += passed;
    const bool main_starved =
        ((active_ | queued_) & bit(number(Stream::main))) == 0 ||
        ((active_ & bit(number(Stream::main))) == 0 && queues_[0].items[queues_[0].head].issued > now_);
    if (main_starved && (active_ | waiting_transfers_) == 0) counters_.host_bound += passed;
}

void VirtualDevice::finish(int stream) {
    Running& running = running_[static_cast<std::size_t>(stream)];
    const Tick taken = now_ - running.start;
    STOWAGE_CHECK(taken >= running.item.length, "work ran faster than it can");
    counters_.busy[static_cast<std::size_t>(stream)] += taken;
    if (running.item.kind == Kind::copy) {
        counters_.copy_busy[running.item.detail] += taken;
        counters_.copy_alone[running.item.detail] += running.item.length;
        counters_.copied[running.item.detail] += running.item.bytes;
    }
    if (finished_ != nullptr)
        finished_->push_back({running.item.tag_or_event, static_cast<Stream>(stream), running.start, now_});
    active_ &= ~bit(stream);
    queues_[static_cast<std::size_t>(stream)].launches -= running.item.launches;
    if (running.item.kind == Kind::copy) {
        --copies_[running.item.detail];
        copies_until_[running.item.detail] = now_;
        speeds_stale_ = true;
    } else if (running.item.kind == Kind::compute) {
        gemm_runs_ = false;
        if (--kernels_ > 0) speeds_stale_ = true;
    }
}

}  // namespace stowage::simulator
