#include "profiler/record/step_events.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace stowage::profiler {
namespace {

using recording::Event;
using recording::EventKind;
using types::Nanoseconds;

/// Where in the order of issue something stands: the call, then the node of the graph that it launched (0: none).
using IssuePlace = std::pair<std::uint32_t, std::pair<bool, std::uint64_t>>;

EventKind kind_of(const Activity& activity) {
    if (activity.kind == ActivityKind::kernel) return EventKind::kernel;
    if (activity.kind == ActivityKind::memset) return EventKind::memset;
    if (activity.copy_kind == CopyKind::device_to_host) return EventKind::device_to_host;
    return activity.copy_kind == CopyKind::host_to_device ? EventKind::host_to_device : EventKind::device_to_device;
}

bool is_wanted(const Event& event, Wanted wanted) {
    return wanted == Wanted::all || event.kind == EventKind::device_to_host || event.kind == EventKind::host_to_device;
}

/// Knows whose an activity is and where in the order of issue.
class Issue {
public:
    explicit Issue(const RawStep& step) : step_(step) {
        for (const Activity& activity : step.activities.activities) note_call(activity);
        for (const Activity& activity : step.activities.activities) places_.emplace_back(place_of(activity));
        std::sort(places_.begin(), places_.end());
        places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    }

    /// Nothing if no mark covers it.
    [[nodiscard]] std::optional<Mark> mark_of(const Activity& activity) const {
        const Mark* const issued = find(activity.issued_under);
        if (activity.graph_node == 0) return issued == nullptr ? std::nullopt : std::optional(*issued);
        const Mark* const captured = find(captured_under(activity));
        if (captured == nullptr) return std::nullopt;
        Mark mark = *captured;
        if (issued != nullptr && issued->layer >= 0) mark.layer = issued->layer;
        if (issued != nullptr && issued->microbatch >= 0) mark.microbatch = issued->microbatch;
        return mark;
    }

    [[nodiscard]] std::uint32_t operation_of(const Activity& activity) const {
        const auto found = std::lower_bound(places_.begin(), places_.end(), place_of(activity));
        return static_cast<std::uint32_t>(found - places_.begin());
    }

private:
    [[nodiscard]] const Mark* find(OperationNumber number) const {
        const auto found = step_.marks.find(number);
        return found == step_.marks.end() ? nullptr : &found->second;
    }

    [[nodiscard]] OperationNumber captured_under(const Activity& activity) const {
        const auto found = step_.activities.node_operations.find(activity.graph_node);
        return found == step_.activities.node_operations.end() ? kNoOperation : found->second;
    }

    /// The first call of each operation.
    void note_call(const Activity& activity) {
        if (activity.issued_under == kNoOperation) return;
        const auto [entry, is_new] = calls_.try_emplace(activity.issued_under, activity.correlation);
        if (!is_new) entry->second = std::min(entry->second, activity.correlation);
    }

    [[nodiscard]] IssuePlace place_of(const Activity& activity) const {
        const std::uint32_t call =
            activity.issued_under == kNoOperation ? activity.correlation : calls_.at(activity.issued_under);
        if (activity.graph_node == 0) return {call, {false, 0}};
        const OperationNumber captured = captured_under(activity);
        return {call, captured == kNoOperation ? std::pair(true, activity.graph_node) : std::pair(false, captured)};
    }

    const RawStep& step_;
    std::unordered_map<OperationNumber, std::uint32_t> calls_;
    std::vector<IssuePlace> places_;
};

Event event_of(const Activity& activity, const RawStep& step, Nanoseconds origin, const Mark& mark, Tables& tables) {
    Event event;
    event.kind = kind_of(activity);
    event.layer = mark.layer;
    event.microbatch = mark.microbatch;
    event.stream = activity.stream;
    event.start = activity.start - origin;
    event.duration = activity.end - activity.start;
    event.bytes = activity.bytes;
    event.in_graph = activity.graph_node != 0;
    if (event.kind == EventKind::kernel) event.name = tables.name(step.activities.names.at(activity.name));
    event.site = tables.site(mark);
    return event;
}

std::vector<Activity> by_start(std::vector<Activity> activities) {
    const auto key = [](const Activity& one) { return std::tuple(one.start, one.end, one.stream, one.correlation); };
    std::stable_sort(activities.begin(), activities.end(),
                     [&](const Activity& left, const Activity& right) { return key(left) < key(right); });
    return activities;
}

}  // namespace

std::uint32_t Tables::site(const Mark& mark) {
    const auto [entry, is_new] =
        site_numbers_.try_emplace({mark.module, mark.phase, mark.work}, static_cast<std::uint32_t>(sites_.size()));
    if (is_new) sites_.push_back({mark.module, mark.phase, mark.work});
    return entry->second;
}

std::uint32_t Tables::name(const std::string& name) {
    const auto [entry, is_new] = name_numbers_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(name);
    return entry->second;
}

recording::Step step_events(const RawStep& raw, Tables& tables, Wanted wanted) {
    recording::Step step;
    step.stage = raw.stage;
    step.graphs = raw.graphs;
    step.time = raw.time;
    step.dropped = raw.activities.dropped + raw.activities.untimed;
    const std::vector<Activity> activities = by_start(raw.activities.activities);
    if (activities.empty()) return step;
    const Issue issue(raw);
    const Nanoseconds origin = activities.front().start;
    for (const Activity& activity : activities) {
        const std::optional<Mark> mark = issue.mark_of(activity);
        if (!mark) ++step.unmatched;
        step.duration = std::max(step.duration, activity.end - origin);
        Event event = event_of(activity, raw, origin, mark.value_or(Mark{}), tables);
        event.operation = issue.operation_of(activity);
        if (is_wanted(event, wanted)) step.events.push_back(event);
    }
    return step;
}

}  // namespace stowage::profiler
