// steps_by_ranges; the rest of range_marks.hpp is in range_marks.cpp.

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "profiler/cupti/range_marks.hpp"

namespace stowage::profiler {
namespace {

using types::Nanoseconds;

/// Calls have their correlations, below 2^32.
constexpr OperationNumber kFirstNode = OperationNumber{1} << 40;
constexpr OperationNumber kFirstMemoryEvent = OperationNumber{1} << 41;

std::optional<std::uint64_t> number_in(std::string_view text, std::string_view key, int base) {
    const std::string_view value = field_of(text, key);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number, base);
    if (value.empty() || error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
    return number;
}

std::optional<MemoryEvent::Kind> memory_kind(std::string_view name) {
    constexpr std::pair<std::string_view, MemoryEvent::Kind> kKinds[] = {
        // NOLINT(modernize-avoid-c-arrays)
        {"stowage:allocate;", MemoryEvent::Kind::allocate},
        {"stowage:free;", MemoryEvent::Kind::free},
        {"stowage:save;", MemoryEvent::Kind::save},
        {"stowage:offloaded;", MemoryEvent::Kind::offloaded}};
    for (const auto& [prefix, kind] : kKinds)
        if (name.starts_with(prefix)) return kind;
    return std::nullopt;
}

/// By how much CUPTI's clock is ahead of the system's; zero if nobody said what that shows.
Nanoseconds clock_difference(const Recording& recording) {
    for (const NvtxMark& mark : recording.marks) {
        const std::string& name = recording.names.at(mark.name);
        const auto shown = name.starts_with("stowage:clock;") ? number_in(name, "time", 10) : std::nullopt;
        if (shown) return mark.time - Nanoseconds(static_cast<std::int64_t>(*shown));
    }
    return Nanoseconds{0};
}

/// Something that happened to memory, and where it was open what: on the thread of the mark, or on any.
struct SaidEvent {
    MemoryEvent event;
    HostMoment moment;
};

std::optional<SaidEvent> memory_event(const Recording& recording, const NvtxMark& mark, Nanoseconds ahead) {
    const std::string& name = recording.names.at(mark.name);
    const auto kind = memory_kind(name);
    const auto address = number_in(name, "address", 16);
    const auto bytes = number_in(name, "bytes", 10);
    if (!kind || !address || !bytes) return std::nullopt;
    SaidEvent said;
    said.event.kind = *kind;
    said.event.address = *address;
    said.event.bytes = types::Bytes{static_cast<std::int64_t>(*bytes)};
    said.event.time = mark.time;
    said.moment = {mark.thread, mark.time};
    if (const auto time = number_in(name, "time", 10)) {
        said.event.time = Nanoseconds(static_cast<std::int64_t>(*time)) + ahead;
        said.moment = {0, said.event.time};
    }
    return said;
}

/// The outermost call of each correlation: a call of the runtime makes calls of the driver.
std::unordered_map<std::uint32_t, const Call*> calls_by_correlation(const Recording& recording) {
    std::unordered_map<std::uint32_t, const Call*> calls;
    for (const Call& call : recording.calls) {
        const Call*& known = calls[call.correlation];
        if (known == nullptr || call.start < known->start) known = &call;
    }
    return calls;
}

/// Who was captured, for nodes and the nodes made from them.
class Origins {
public:
    explicit Origins(const std::vector<GraphNode>& nodes) {
        for (const GraphNode& node : nodes) {
            const auto [entry, is_new] = by_number_.try_emplace(node.node, &node);
            if (!is_new && node.original != 0) entry->second = &node;  // CUPTI may tell a copy as made, too
        }
    }
    /// Null if its making was not seen.
    [[nodiscard]] const GraphNode* of(std::uint64_t number) const {
        const GraphNode* found = nullptr;
        for (std::size_t steps = 0; steps <= by_number_.size(); ++steps) {
            const auto entry = by_number_.find(number);
            if (entry == by_number_.end()) return nullptr;
            found = entry->second;
            if (found->original == 0) return found;
            number = found->original;
        }
        return nullptr;  // in a circle
    }

private:
    std::unordered_map<std::uint64_t, const GraphNode*> by_number_;
};

/// Everything in one step, with the number of each thing's mark; cut afterwards.
class Whole {
public:
    explicit Whole(const Recording& recording) : recording_(recording), calls_(calls_by_correlation(recording)) {
        step_.activities = recording;
        ask_calls();
        ask_nodes();
        ask_memory();
        const std::vector<Mark> marks = marks_at(recording, moments_);
        for (std::size_t i = 0; i < marks.size(); ++i)
            if (marks[i] != Mark{}) step_.marks.emplace(numbers_[i], marks[i]);
    }

    /// When the host issued it; when it began, if the call is not known.
    [[nodiscard]] Nanoseconds issued(const Activity& activity) const {
        const auto found = calls_.find(activity.correlation);
        return found == calls_.end() ? activity.start : found->second->start;
    }
    [[nodiscard]] const RawStep& step() const { return step_; }

private:
    void ask(OperationNumber number, HostMoment moment) {
        numbers_.push_back(number);
        moments_.push_back(moment);
    }

    void ask_calls() {
        std::unordered_map<std::uint32_t, bool> asked;
        for (Activity& activity : step_.activities.activities) {
            const auto found = calls_.find(activity.correlation);
            if (found == calls_.end()) continue;
            activity.issued_under = activity.correlation;
            if (!std::exchange(asked[activity.correlation], true))
                ask(activity.correlation, {found->second->thread, found->second->start});
        }
    }

    void ask_nodes() {
        const Origins origins(recording_.nodes);
        std::unordered_map<std::uint64_t, OperationNumber> numbers;  // of nodes that were captured
        for (const Activity& activity : recording_.activities) {
            if (activity.graph_node == 0 || step_.activities.node_operations.contains(activity.graph_node)) continue;
            const GraphNode* const origin = origins.of(activity.graph_node);
            if (origin == nullptr) continue;
            const auto [entry, is_new] = numbers.try_emplace(origin->node, kFirstNode + numbers.size());
            if (is_new) ask(entry->second, {origin->thread, origin->made});
            step_.activities.node_operations.emplace(activity.graph_node, entry->second);
        }
    }

    void ask_memory() {
        const Nanoseconds ahead = clock_difference(recording_);
        for (const NvtxMark& mark : recording_.marks) {
            std::optional<SaidEvent> said = memory_event(recording_, mark, ahead);
            if (!said) continue;
            said->event.issued_under = kFirstMemoryEvent + step_.memory.size();
            ask(said->event.issued_under, said->moment);
            step_.memory.push_back(said->event);
        }
        std::stable_sort(step_.memory.begin(), step_.memory.end(),
                         [](const auto& left, const auto& right) { return left.time < right.time; });
    }

    const Recording& recording_;
    std::unordered_map<std::uint32_t, const Call*> calls_;
    RawStep step_;
    std::vector<OperationNumber> numbers_;
    std::vector<HostMoment> moments_;
};

bool has_graphs(const Recording& recording) {
    return std::any_of(recording.activities.begin(), recording.activities.end(),
                       [](const Activity& activity) { return activity.graph_node != 0; });
}

template <class Record, class TimeOf>
std::vector<Record> between(const std::vector<Record>& records, const NvtxRange& range, TimeOf time_of) {
    std::vector<Record> inside;
    for (const Record& record : records)
        if (const Nanoseconds time = time_of(record); time >= range.start && time < range.end) inside.push_back(record);
    return inside;
}

void copy_mark(const RawStep& from, OperationNumber number, RawStep& into) {
    if (const auto found = from.marks.find(number); found != from.marks.end()) into.marks.insert(*found);
}

/// Whose the activities and memory events of a step are, taken from where all is known.
void copy_owners(const RawStep& from, RawStep& into) {
    for (const Activity& activity : into.activities.activities) {
        copy_mark(from, activity.issued_under, into);
        const auto node = from.activities.node_operations.find(activity.graph_node);
        if (activity.graph_node == 0 || node == from.activities.node_operations.end()) continue;
        into.activities.node_operations.insert(*node);
        copy_mark(from, node->second, into);
    }
    for (const MemoryEvent& event : into.memory) copy_mark(from, event.issued_under, into);
}

/// What was lost counts for every step: nobody knows whose it was.
void copy_losses(const Recording& from, Recording& into) {
    into.dropped = from.dropped;
    into.drops = from.drops;
    into.buffers = from.buffers;
    into.untimed = from.untimed;
    into.foreign_buffers = from.foreign_buffers;
    into.missing_buffers = from.missing_buffers;
    into.last_wait = from.last_wait;
}

RawStep cut(const Whole& whole, const NvtxRange& range, std::string_view name) {
    const RawStep& all = whole.step();
    const Recording& from = all.activities;
    const auto start_of = [](const auto& record) { return record.start; };
    const auto time_of = [](const auto& record) { return record.time; };
    RawStep step;
    step.stage = field_of(name, "stage");
    Recording& into = step.activities;
    into.names = from.names;
    into.activities = between(from.activities, range, [&](const Activity& one) { return whole.issued(one); });
    into.calls = between(from.calls, range, start_of);
    into.waits = between(from.waits, range, start_of);
    into.ranges = between(from.ranges, range, start_of);
    into.allocations = between(from.allocations, range, time_of);
    into.pools = between(from.pools, range, time_of);
    into.marks = between(from.marks, range, time_of);
    step.memory = between(all.memory, range, time_of);
    copy_losses(from, into);
    copy_owners(all, step);
    step.graphs = has_graphs(into);
    return step;
}

}  // namespace

std::vector<RawStep> steps_by_ranges(const Recording& recording) {
    const Whole whole(recording);
    std::vector<NvtxRange> ranges;
    for (const NvtxRange& range : recording.ranges) {
        const std::string& name = recording.names.at(range.name);
        if (name == "stowage:step" || name.starts_with("stowage:step;")) ranges.push_back(range);
    }
    std::vector<RawStep> steps;
    for (const NvtxRange& range : ranges) steps.push_back(cut(whole, range, recording.names.at(range.name)));
    if (!steps.empty()) return steps;
    steps.push_back(whole.step());
    steps.back().graphs = has_graphs(recording);
    return steps;
}

}  // namespace stowage::profiler
