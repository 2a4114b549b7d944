#include "profiler/cupti/range_marks.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace stowage::profiler {
namespace {

using types::Nanoseconds;

constexpr std::string_view kStep = "stowage:step";

/// A range that is a mark.
struct MarkedRange {
    std::uint32_t thread = 0;
    Nanoseconds start{};
    Nanoseconds end{};
    const Mark* mark = nullptr;
};

bool is_step(std::string_view name) {
    return name.starts_with(kStep) && (name.size() == kStep.size() || name[kStep.size()] == ';');
}

/// What each name says; nothing of names that are no marks, or those of steps.
std::vector<std::optional<Mark>> marks_of_names(const std::vector<std::string>& names) {
    std::vector<std::optional<Mark>> marks;
    marks.reserve(names.size());
    for (const std::string& name : names) marks.push_back(is_step(name) ? std::nullopt : mark_of(name));
    return marks;
}

std::vector<MarkedRange> marked_ranges(const Recording& recording, const std::vector<std::optional<Mark>>& marks) {
    std::vector<MarkedRange> ranges;
    for (const NvtxRange& range : recording.ranges)
        if (const auto& mark = marks.at(range.name))
            ranges.push_back({range.thread, range.start, range.end, &mark.value()});
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const auto& left, const auto& right) { return left.start < right.start; });
    return ranges;
}

/// The ranges that are open on one thread while time goes on.
class OpenRanges {
public:
    OpenRanges(const std::vector<MarkedRange>& ranges, std::uint32_t thread) : ranges_(ranges), thread_(thread) {}

    Mark at(Nanoseconds time) {
        for (; next_ < ranges_.size() && ranges_[next_].start <= time; ++next_)
            if (ranges_[next_].thread == thread_ || ranges_[next_].thread == 0 || thread_ == 0)
                open_.push_back(&ranges_[next_]);
        std::erase_if(open_, [time](const MarkedRange* range) { return range->end <= time; });
        Mark mark;
        for (const MarkedRange* range : open_) mark = inside(mark, *range->mark);
        return mark;
    }

private:
    const std::vector<MarkedRange>& ranges_;
    std::uint32_t thread_;
    std::size_t next_ = 0;
    std::vector<const MarkedRange*> open_;
};

}  // namespace

Mark inside(const Mark& outer, const Mark& inner) {
    Mark mark = inner;
    if (mark.module.empty()) mark.module = outer.module;
    if (mark.phase.empty()) mark.phase = outer.phase;
    if (mark.work.empty()) mark.work = outer.work;
    if (mark.layer < 0) mark.layer = outer.layer;
    if (mark.microbatch < 0) mark.microbatch = outer.microbatch;
    if (mark.chunk < 0) mark.chunk = outer.chunk;
    return mark;
}

std::vector<Mark> marks_at(const Recording& recording, std::span<const HostMoment> moments) {
    const std::vector<std::optional<Mark>> names = marks_of_names(recording.names);
    const std::vector<MarkedRange> ranges = marked_ranges(recording, names);
    std::vector<std::size_t> order(moments.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
        return std::tuple(moments[left].thread, moments[left].time, left) <
               std::tuple(moments[right].thread, moments[right].time, right);
    });
    std::vector<Mark> marks(moments.size());
    std::optional<OpenRanges> open;
    for (std::size_t i = 0; i < order.size(); ++i) {
        const HostMoment& moment = moments[order[i]];
        if (i == 0 || moments[order[i - 1]].thread != moment.thread) open.emplace(ranges, moment.thread);
        marks[order[i]] = open->at(moment.time);
    }
    return marks;
}

std::string_view field_of(std::string_view text, std::string_view key) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of(":;"), text.size());
        const std::string_view field = text.substr(0, end);
        const std::size_t equals = field.find('=');
        if (equals != std::string_view::npos && field.substr(0, equals) == key) return field.substr(equals + 1);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return {};
}

}  // namespace stowage::profiler
