#include "planner/search/free_pace.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::search {
namespace {

/// The smallest value of one pace whose step is as fast as any, the other pace being as it is.
std::int64_t smallest_as_fast(const Job& job, OffloadChoice choice, std::int64_t types::FreeOffload::*pace) {
    std::array<Nanoseconds, kPaces.size()> times{};
    for (std::size_t i = 0; i < kPaces.size(); ++i) {
        (*choice.free).*pace = kPaces[i];
        const Outcome outcome = evaluate(job, choice);
        times[i] = outcome.runs() ? outcome.step_time : Nanoseconds::max();
    }
    const double best = static_cast<double>(std::min_element(times.begin(), times.end())->count());
    const auto fast = [&](Nanoseconds time) { return static_cast<double>(time.count()) <= best * (1 + kAsFast); };
    return kPaces[static_cast<std::size_t>(std::find_if(times.begin(), times.end(), fast) - times.begin())];
}

}  // namespace

OffloadChoice choose_pace(const Job& job, OffloadChoice choice, OpenPace open) {
    STOWAGE_CHECK(choice.free.has_value(), "the choice names its groups");
    constexpr std::int64_t kAmple = kPaces.back();
    if (open.reload_ahead) choice.free->reload_ahead = kAmple;  // so that reloads hide nothing of the other half
    if (open.join_after) choice.free->join_after = smallest_as_fast(job, choice, &types::FreeOffload::join_after);
    if (open.reload_ahead) choice.free->reload_ahead = smallest_as_fast(job, choice, &types::FreeOffload::reload_ahead);
    return choice;
}

}  // namespace stowage::search
