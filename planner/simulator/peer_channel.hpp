#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace stowage::simulator {

/// The transfers of one kind from one pipeline rank to a neighbour. Each side posts its calls in order; the k-th send
/// and the k-th receive are the two halves of one transfer, which starts when both have been reached (NCCL's send and
/// receive kernels wait for each other).
///
/// Each side also says how far it has got: it will post nothing before that time. A rank that waits for its partner's
/// post goes on with everything else up to there, so that two ranks that wait for each other's next post do not stand
/// still (the lower bounds of conservative parallel simulation: Chandy, Misra 1979).
class PeerChannel {
public:
    /// Side 0 sends. Result: the number of this side's call.
    std::size_t post(int side, std::int64_t time) {
        times_[side].push_back(time);
        return times_[side].size() - 1;
    }
    /// When the other side reached call `number`, if it has.
    [[nodiscard]] std::optional<std::int64_t> partner_time(int side, std::size_t number) const {
        const auto& times = times_[1 - side];
        return number < times.size() ? std::optional(times[number]) : std::nullopt;
    }
    /// This side posts nothing more before `time`.
    void promise(int side, std::int64_t time) { clock_[side] = std::max(clock_[side], time); }
    /// The other side posts nothing more before this.
    [[nodiscard]] std::int64_t partner_clock(int side) const { return clock_[1 - side]; }
    /// Whether both sides made equally many calls.
    [[nodiscard]] bool balanced() const { return times_[0].size() == times_[1].size(); }

private:
    std::vector<std::int64_t> times_[2];
    std::int64_t clock_[2] = {0, 0};
};

}  // namespace stowage::simulator
