#include "planner/program/recorded_operations.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace stowage::program {
namespace {

using recording::Event;
using recording::EventKind;
using types::Nanoseconds;

bool is_usable(const recording::Step& step) {
    return !step.graphs && step.stage != "record" && step.dropped == 0 && !step.events.empty();
}

Nanoseconds end_of(const Event& event) { return event.start + event.duration; }

bool crosses_the_link(const Event& event) {
    return event.kind == EventKind::device_to_host || event.kind == EventKind::host_to_device;
}

/// The stream of most kernels. Not the one on which they run longest: a kernel that waits in place of other ranks does
/// so on another stream, as long as they take.
std::uint32_t main_stream(const std::vector<Event>& events) {
    std::map<std::uint32_t, std::int64_t> kernels;
    for (const Event& event : events)
        if (event.kind == EventKind::kernel) ++kernels[event.stream];
    const auto most = std::max_element(kernels.begin(), kernels.end(),
                                       [](const auto& left, const auto& right) { return left.second < right.second; });
    return most == kernels.end() ? 0 : most->first;
}

/// An operation while its activities come in.
struct Span {
    std::uint32_t operation = 0;
    const Event* first = nullptr;
    Nanoseconds start{0};
    Nanoseconds end{0};
    std::int32_t launches = 1;
    std::optional<Nanoseconds> behind;  ///< the main stream's idle time until its next operation, whatever the reason
};

/// Copies between device and host, as times that none other touches, in order.
std::vector<std::pair<Nanoseconds, Nanoseconds>> copy_times(const std::vector<Event>& events) {
    std::vector<std::pair<Nanoseconds, Nanoseconds>> times;
    for (const Event& event : events) {
        if (!crosses_the_link(event)) continue;
        if (!times.empty() && event.start <= times.back().second)
            times.back().second = std::max(times.back().second, end_of(event));
        else
            times.emplace_back(event.start, end_of(event));
    }
    return times;
}

/// The operations of one step's main stream.
class StepSpans {
public:
    explicit StepSpans(const recording::Step& step) : copies_(copy_times(step.events)) {
        const std::uint32_t stream = main_stream(step.events);
        for (const Event& event : step.events)
            if (event.stream == stream && !crosses_the_link(event)) add(event);
    }

    [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }

    [[nodiscard]] bool beside_copy(const Span& span) const {
        const auto copy = std::upper_bound(copies_.begin(), copies_.end(), span.start,
                                           [](Nanoseconds start, const auto& other) { return start < other.second; });
        return copy != copies_.end() && copy->first < span.end;
    }

private:
    void add(const Event& event) {
        const auto [place, is_new] = places_.try_emplace(event.operation, spans_.size());
        if (is_new) {
            if (!spans_.empty()) spans_[last_].behind = event.start - spans_[last_].end;
            spans_.push_back({event.operation, &event, event.start, end_of(event), 1, {}});
        } else {
            Span& span = spans_[place->second];
            span.end = std::max(span.end, end_of(event));
            ++span.launches;
        }
        last_ = place->second;
    }

    std::vector<std::pair<Nanoseconds, Nanoseconds>> copies_;
    std::vector<Span> spans_;
    std::map<std::uint32_t, std::size_t> places_;
    std::size_t last_ = 0;  ///< whose activity came last
};

/// Of sorted values, the one that so many per cent are below.
Nanoseconds percentile(const std::vector<Nanoseconds>& sorted, std::size_t per_cent) {
    return sorted[(sorted.size() - 1) * per_cent / 100];
}

std::vector<Nanoseconds> gaps_of(const std::vector<StepSpans>& steps) {
    std::vector<Nanoseconds> gaps;
    for (const StepSpans& step : steps)
        for (const Span& span : step.spans())
            if (span.behind) gaps.push_back(*span.behind);
    std::sort(gaps.begin(), gaps.end());
    return gaps;
}

/// The longest gap that is the device's own.
Nanoseconds longest_own(const std::vector<Nanoseconds>& gaps, const types::Node& node) {
    const Nanoseconds empty = node.device.kernel_overhead;
    if (gaps.empty()) return 2 * empty;
    const Nanoseconds quartile = percentile(gaps, 25);
    return 2 * (quartile < node.host.kernel_launch ? std::max(empty, quartile) : empty);
}

Nanoseconds middle_own(const std::vector<Nanoseconds>& gaps, Nanoseconds longest, const types::Node& node) {
    const auto end = std::upper_bound(gaps.begin(), gaps.end(), longest);
    if (end == gaps.begin()) return node.device.kernel_overhead;
    return percentile({gaps.begin(), end}, 50);
}

using Pass = std::tuple<std::uint32_t, std::int32_t, std::int32_t>;  ///< site, layer, microbatch

void add_operations(const StepSpans& step, std::uint32_t number, Nanoseconds longest_gap,
                    std::vector<RecordedOperation>& operations) {
    std::vector<Span> issued = step.spans();
    std::stable_sort(issued.begin(), issued.end(),
                     [](const Span& left, const Span& right) { return left.operation < right.operation; });
    std::map<Pass, std::uint32_t> passed;
    for (const Span& span : issued) {
        const Event& event = *span.first;
        RecordedOperation operation{event.site, event.layer, event.microbatch,      0,
                                    number,     event.name,  span.end - span.start, {}};
        operation.occurrence = passed[{event.site, event.layer, event.microbatch}]++;
        if (span.behind && *span.behind <= longest_gap) operation.gap = span.behind;
        operation.beside_copy = step.beside_copy(span);
        operation.launches = span.launches;
        operations.push_back(operation);
    }
}

/// What recording added to the steps that are used.
void take_off_stamping(const recording::Recording& recording, RecordedOperations& recorded) {
    std::vector<Nanoseconds> timed;
    for (const recording::Step& step : recording.steps)
        if (is_usable(step) && step.time.count() > 0) timed.push_back(step.time);
    const Nanoseconds unrecorded = recording::median(recording.step_times);
    const Nanoseconds with_records = recording::median(timed);
    if (unrecorded.count() <= 0 || with_records.count() <= 0) return;
    recorded.recording_cost = static_cast<double>(with_records.count()) / static_cast<double>(unrecorded.count()) - 1;
    const auto operations = static_cast<std::int64_t>(recorded.operations.size() / recorded.steps.size());
    if (operations == 0 || with_records <= unrecorded) return;
    recorded.stamping = (with_records - unrecorded) / operations;
    const auto shorten = [&](Nanoseconds& gap) {
        if (gap.count() > 0) gap -= std::min(gap, recorded.stamping);
    };
    shorten(recorded.gap);
    for (RecordedOperation& operation : recorded.operations)
        if (operation.gap) shorten(*operation.gap);
}

}  // namespace

RecordedOperations recorded_operations(const recording::Recording& recording, const types::Node& node) {
    RecordedOperations recorded;
    std::vector<StepSpans> steps;
    for (const recording::Step& step : recording.steps) {
        if (!is_usable(step)) continue;
        steps.emplace_back(step);
        recorded.steps.push_back(step.duration);
    }
    const std::vector<Nanoseconds> gaps = gaps_of(steps);
    const Nanoseconds longest = longest_own(gaps, node);
    recorded.gap = middle_own(gaps, longest, node);
    for (std::size_t i = 0; i < steps.size(); ++i)
        add_operations(steps[i], static_cast<std::uint32_t>(i), longest, recorded.operations);
    take_off_stamping(recording, recorded);
    return recorded;
}

}  // namespace stowage::program
