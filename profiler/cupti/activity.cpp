#include "profiler/cupti/activity.hpp"

#include <algorithm>
#include <chrono>

namespace stowage::profiler {
namespace {

using types::Nanoseconds;

/// Far more than it takes from the end of a wait to its record, and far less than a training step's worth of waits.
constexpr Nanoseconds kSilence = std::chrono::seconds(1);

constexpr const char* kWhoElse =
    "another profiler in the process has taken CUPTI's buffers over: torch.profiler does; do not start it under "
    "stowage";

void add_lost(const Recording& recording, std::vector<std::string>& doubts) {
    if (recording.dropped == 0) return;
    std::string text = std::to_string(recording.dropped) + " records were dropped";
    for (const Drop& drop : recording.drops)
        if (drop.context != kNotApplicable)
            text += " (context " + std::to_string(drop.context) + ", stream " + std::to_string(drop.stream) + ": " +
                    std::to_string(drop.records) + ")";
    doubts.push_back(text + ": the host had no memory for them; record fewer kinds, or a shorter time");
}

void add_untimed(const Recording& recording, std::vector<std::string>& doubts) {
    if (recording.untimed == 0) return;
    doubts.push_back(std::to_string(recording.untimed) +
                     " records are without times: the device was not idle when recording stopped, or had no memory "
                     "left for CUPTI; wait for it before stopping, leave some memory free");
}

void add_taken_over(const Recording& recording, std::vector<std::string>& doubts) {
    const Nanoseconds last = last_time(recording);
    if (recording.foreign_buffers > 0)
        doubts.push_back(std::to_string(recording.foreign_buffers) + " buffers came that are not ours: " + kWhoElse);
    else if (recording.buffers == 0 && recording.last_wait > Nanoseconds::zero())
        doubts.push_back(std::string("CUPTI delivered nothing, though the device was used: ") + kWhoElse);
    else if (recording.last_wait > last + kSilence)
        doubts.push_back(
            "the last record is " +
            std::to_string(std::chrono::duration_cast<std::chrono::seconds>(recording.last_wait - last).count()) +
            " s older than the last wait for the device: " + kWhoElse);
}

template <class Record, class TimeOf>
void take_latest(Nanoseconds& latest, const std::vector<Record>& records, TimeOf time_of) {
    for (const Record& record : records)
        if (const Nanoseconds time = time_of(record); time != kStillOpen) latest = std::max(latest, time);
}

}  // namespace

Nanoseconds last_time(const Recording& recording) {
    Nanoseconds latest{};
    const auto end_of = [](const auto& record) { return record.end; };
    const auto time_of = [](const auto& record) { return record.time; };
    take_latest(latest, recording.activities, end_of);
    take_latest(latest, recording.calls, end_of);
    take_latest(latest, recording.allocations, time_of);
    take_latest(latest, recording.pools, time_of);
    take_latest(latest, recording.waits, end_of);
    take_latest(latest, recording.marks, time_of);
    take_latest(latest, recording.ranges, end_of);
    return latest;
}

std::vector<std::string> doubts_about(const Recording& recording) {
    std::vector<std::string> doubts;
    add_lost(recording, doubts);
    add_untimed(recording, doubts);
    add_taken_over(recording, doubts);
    return doubts;
}

}  // namespace stowage::profiler
