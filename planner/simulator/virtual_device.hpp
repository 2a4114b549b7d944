#pragma once

// One GPU in virtual time: FIFO streams, two copy engines, kernels that copies slow down.
//
// The host gives work to streams, each piece with the moment it was issued. Work starts when everything before it on
// its stream is done and the waits in between are satisfied. A piece has a length, the time it takes alone; it advances
// at full speed unless it shares the device: both directions of copies at once each keep their duplex share, and a
// kernel beside copies is slowed by its class. Speeds change only when some piece starts or ends, so time moves from
// one such moment to the next.
//
// Copies of one direction go through one engine, one after another. It stays with a stream as long as that stream has a
// copy ready when one ends, and otherwise turns to the stream whose copy has been ready longest. So a stream with many
// copies in a row keeps every other out. Measured: docs/measurements/2026-11-29-h200-cuda-graphs.md, copies.
//
// Kernels of different streams: a GEMM fills the device, so that no other kernel gets in before it ends, and itself
// waits until the device is free; of several that wait the one that was ready first goes first, or the one issued
// first. Other kernels that run at once share the device equally. Measured for gathers on the copy stream beside every
// kernel of a layer: docs/measurements/2026-11-29-peer-prediction.md. Collectives and transfers keep to a few
// multiprocessors and take no turn.
//
// Time is advanced lazily: the host asks (has this event completed? is this stream done?) or ends. Nothing that it
// issues later can change what happened before, since it issues in the order of its own clock.
//
// Arithmetic is integer: lengths in 2^-20 ns, speeds in 2^-20, finishes rounded up to whole nanoseconds, so a lone
// piece takes exactly its length. Ties are settled in stream order.
//
// Worked example: a kernel of 100 us with 5 % slowdown under D2H, beside a D2H copy of 42 us: the kernel has done 40 us
// when the copy ends, and finishes at 102 us.
//
// Tested by: tests/planner/simulator/virtual_device_test.cpp.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/program/operation.hpp"
#include "planner/program/stream.hpp"
#include "planner/simulator/peer_channel.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

using program::Direction;
using program::Stream;

/// Nanoseconds since the start of the run, as plain numbers: this is the inner loop.
using Tick = std::int64_t;

/// No single piece of work is longer, a wait for a neighbour included: 73 minutes.
inline constexpr Tick kLongestWork = Tick{1} << 42;
/// Throw: types::UnsupportedError for a piece, or a moment, beyond which ticks could overflow.
void check_length(Tick length);
void check_moment(Tick moment);

enum class EventId : std::uint64_t {};

/// One finished piece of work, for timelines.
struct FinishedWork {
    std::uint64_t tag = 0;
    Stream stream = Stream::main;
    Tick start = 0;
    Tick end = 0;
};

/// What the device did since the counters were last reset.
struct DeviceCounters {
    std::array<Tick, program::kStreamCount> busy{};
    std::array<Tick, 2> copy_busy{};       ///< each piece's own time on its engine
    std::array<Tick, 2> copy_alone{};      ///< the same copies' lengths: never more than copy_busy
    std::array<std::int64_t, 2> copied{};  ///< bytes
    Tick exposed_copy = 0;
    Tick host_bound = 0;
};

class VirtualDevice {
public:
    /// Without `interference` copies and kernels ignore each other, and so do kernels of different streams; copies of
    /// one direction still go through one engine.
    VirtualDevice(const types::CopyEngines& engines, bool interference);

    // What the host issues. `issued` never decreases.
    /// `launches`: places that it takes in the stream's launch queue until it is done.
    void compute(Stream stream, types::KernelClass kind, Tick length, Tick issued, std::uint64_t tag,
                 std::uint16_t launches = 1);
    void copy(Stream stream, Direction direction, std::int64_t bytes, Tick length, Tick issued, std::uint64_t tag);
    /// Work that neither slows nor is slowed: collectives.
    void communicate(Stream stream, Tick length, Tick issued, std::uint64_t tag);
    /// A transfer with a neighbour; `side` is this rank's side of the channel.
    void transfer(Stream stream, PeerChannel& channel, int side, Tick length, Tick issued, std::uint64_t tag);
    EventId record(Stream stream, Tick issued);
    void wait(Stream stream, EventId event, Tick issued);

    /// Moves to `time`. Result: false if a transfer needs its partner first, which may still post before `time`; call
    /// again after the partner moved on.
    bool advance_to(Tick time);
    /// Moves to the next moment at which something starts or ends.
    bool advance_one();
    /// Moves until the stream (or every stream) has nothing left.
    bool drain(Stream stream);
    bool drain_all();

    [[nodiscard]] Tick now() const { return now_; }
    /// The next moment at which something can start or end by what was issued so far, partners' promises included.
    [[nodiscard]] Tick earliest_change() const;
    /// Whether the event has been reached by now.
    [[nodiscard]] bool completed(EventId event) const;
    /// Pieces on a stream that are not finished.
    [[nodiscard]] std::size_t pending(Stream stream) const;
    /// Launches of those of them that are work: recordings of events and waits take no place in a stream's launch
    /// queue. Source: docs/measurements/2026-11-29-h200-peer-memory.json, calls accepted behind a kernel that does not
    /// end.
    [[nodiscard]] std::size_t launches(Stream stream) const { return queues_[program::index(stream)].launches; }
    /// Whether a copy of that direction runs now, and since when one has without a break.
    [[nodiscard]] bool copies(Direction direction) const { return copies_[static_cast<std::size_t>(direction)] > 0; }
    [[nodiscard]] Tick copies_since(Direction direction) const {
        return copies_since_[static_cast<std::size_t>(direction)];
    }
    [[nodiscard]] bool idle() const { return active_ == 0 && queued_ == 0; }

    /// Counts the moments passed and the transfers posted; stands still only while nothing happens.
    [[nodiscard]] std::uint64_t moments() const { return moments_; }
    [[nodiscard]] const DeviceCounters& counters() const { return counters_; }
    void reset_counters() { counters_ = {}; }
    /// Forgets events all of which are complete; handles given out before count as complete. Only when idle.
    void forget_events();
    /// Finished pieces are appended here when set.
    void trace_into(std::vector<FinishedWork>* finished) { finished_ = finished; }

private:
    enum class Kind : std::uint8_t { compute, copy, communicate, transfer, record, wait };
    struct Item {
        Tick issued = 0;
        Tick length = 0;
        std::uint64_t tag_or_event = 0;
        std::int64_t bytes = 0;
        PeerChannel* channel = nullptr;
        Kind kind{};
        std::uint8_t detail = 0;  ///< kernel class, direction, or side
        std::uint16_t launches = 1;
        bool posted = false;
        std::size_t call = 0;
        Tick reached = 0;  ///< a transfer: when this rank got to it
    };
    struct Queue {
        std::vector<Item> items;
        std::size_t head = 0;
        std::size_t launches = 0;  ///< of work that is not finished
        [[nodiscard]] bool empty() const { return head == items.size(); }
        [[nodiscard]] std::size_t size() const { return items.size() - head; }
    };
    struct Running {
        Item item;
        std::int64_t remaining = 0;  ///< in 2^-20 ns, as of `updated`
        std::int64_t speed = 0;
        Tick updated = 0;
        Tick start = 0;
        Tick finish = 0;
    };
    struct Event {
        Tick time = -1;
        Stream source = Stream::main;
    };

    static constexpr int kShift = 20;
    static constexpr std::int64_t kFull = std::int64_t{1} << kShift;
    static_assert(kLongestWork == Tick{1} << (62 - kShift));
    static constexpr Tick kNever = INT64_MAX;

    Item& push(Stream stream, Kind kind, Tick issued);
    bool run(Tick limit, std::uint32_t until_drained);
    void settle();
    bool settle_stream(int stream);
    void pass_to(Tick time);
    bool start_transfer(Item& item);
    void await_turn(int stream);
    void await_engine(int stream);
    void start_ready_kernels();
    void start_ready_copies();
    [[nodiscard]] const Item& head(int stream) const;
    void start(int stream, const Item& item);
    void pop(int stream);
    void finish(int stream);
    void update_speeds();
    void set_speed(Running& running);
    [[nodiscard]] std::int64_t speed_of(const Item& item) const;
    [[nodiscard]] Tick next_moment() const;
    void account(Tick until);
    [[nodiscard]] bool main_waits_for_copy() const;
    [[nodiscard]] std::optional<Stream> awaited_by(Stream stream) const;

    std::array<Queue, program::kStreamCount> queues_;
    std::array<Running, program::kStreamCount> running_;
    std::uint32_t active_ = 0;             ///< bit s: a piece runs on stream s
    std::uint32_t queued_ = 0;             ///< bit s: stream s has items that have not started
    std::uint32_t waiting_transfers_ = 0;  ///< bit s: a transfer at the head of stream s waits for its partner
    std::uint32_t waiting_kernels_ = 0;  ///< bit s: the kernel at the head of stream s is ready and waits for its turn
    std::array<Tick, program::kStreamCount> kernel_ready_{};  ///< since when, for those
    /// By direction, bit s: the copy at the head of stream s is ready and waits for the engine.
    std::array<std::uint32_t, 2> waiting_copies_{};
    std::array<Tick, program::kStreamCount> copy_ready_{};  ///< since when, for those
    std::array<int, 2> engine_stream_{-1, -1};              ///< by direction: whose copy the engine took last
    int kernels_ = 0;                                       ///< running
    bool gemm_runs_ = false;                                ///< one of them, then the only one, is a GEMM
    bool kernels_take_turns_ = false;
    std::vector<Event> events_;
    std::uint64_t events_base_ = 0;
    Tick now_ = 0;
    std::uint64_t moments_ = 0;
    std::array<int, 2> copies_{};  ///< running, by direction
    std::array<Tick, 2> copies_since_{};
    std::array<Tick, 2> copies_until_{-1, -1};  ///< when the last one ended
    bool speeds_stale_ = false;
    Tick blocked_until_ = kNever;   ///< a transfer waits for a partner that posts nothing before this
    Tick blocked_change_ = kNever;  ///< when such a transfer could end at the earliest
    bool host_waits_ = false;
    std::array<std::array<std::int64_t, 4>, types::kKernelClassCount> kernel_speed_{};
    std::array<std::array<std::int64_t, 2>, 2> copy_speed_{};  ///< [direction][the other direction runs too]
    DeviceCounters counters_;
    std::vector<FinishedWork>* finished_ = nullptr;
};

}  // namespace stowage::simulator
