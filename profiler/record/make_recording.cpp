#include "profiler/record/make_recording.hpp"

#include <algorithm>

#include "profiler/record/step_events.hpp"
#include "profiler/record/tensor_groups.hpp"

namespace stowage::profiler {
namespace {

constexpr const char* kRecord = "record";

const RawStep* step_with_memory(const std::vector<RawStep>& steps) {
    const auto has_memory = [](const RawStep& step) { return !step.memory.empty(); };
    const auto first = std::find_if(steps.begin(), steps.end(),
                                    [&](const RawStep& step) { return step.stage == kRecord && has_memory(step); });
    if (first != steps.end()) return &*first;
    const auto any = std::find_if(steps.begin(), steps.end(), has_memory);
    return any == steps.end() ? nullptr : &*any;
}

}  // namespace

recording::Recording make_recording(const std::vector<RawStep>& steps, recording::Recording header,
                                    const RecordingLimits& limits) {
    const bool others = std::any_of(steps.begin(), steps.end(), [](const auto& step) { return step.stage != kRecord; });
    Tables tables;
    header.steps.clear();
    std::size_t events = 0;
    bool any = false;
    for (const RawStep& raw : steps) {
        const bool record = raw.stage == kRecord;
        recording::Step step = step_events(raw, tables, record && others ? Wanted::copies : Wanted::all);
        if ((any || record) && events + step.events.size() > limits.most_events) continue;
        any = any || !record;
        events += step.events.size();
        header.steps.push_back(std::move(step));
    }
    header.sites = tables.sites();
    header.names = tables.names();
    const RawStep* const first = step_with_memory(steps);
    header.groups = first != nullptr ? tensor_groups(*first) : std::vector<recording::Group>{};
    return header;
}

}  // namespace stowage::profiler
