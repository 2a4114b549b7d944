#include "reports/trace.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "reports/graph_launches.hpp"
#include "reports/trace_events.hpp"
#include "scenarios/types/module.hpp"

namespace stowage::reports {
namespace {

using program::Direction;
using program::Operation;
using program::OperationKind;
using program::StageTimeline;
using program::StepProgram;
using program::TimelineEntry;
using types::Bytes;

/// One rank's part of the trace.
class RankTrace {
public:
    RankTrace(EventWriter& writer, const StepProgram& program, const StageTimeline& timeline, std::int64_t& arrows)
        : writer_(writer),
          program_(program),
          timeline_(timeline),
          rank_(program.pipeline_rank),
          arrows_(arrows),
          labels_(program.labels.size()) {
        for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i] = json_string(program.labels[i]);
    }

    void write() {
        launches_ = graph_launches(program_, timeline_);
        name_tracks();
        const auto held = std::min<std::size_t>(timeline_.entries.size(), kMostTraceEvents);
        types::SimTime last{};
        for (std::size_t i = 0; i < held; ++i) {
            slice(timeline_.entries[i]);
            last = std::max(last, timeline_.entries[i].end);
        }
        writer_.leave_out(static_cast<std::int64_t>(timeline_.entries.size() - held));
        for (const GraphLaunch& launch : launches_)
            if (held == timeline_.entries.size() || launch.end <= last) graph(launch);
        counters(held < timeline_.entries.size() ? std::optional(last) : std::nullopt);
    }

private:
    /// An offload group while it is on the host.
    struct GroupKey {
        std::uint32_t frame;
        types::Module module;
        auto operator<=>(const GroupKey&) const = default;
    };

    void name_tracks() {
        writer_.event(
            R"({{"ph":"M","pid":{0},"tid":0,"ts":0,"name":"process_name","args":{{"name":"pipeline rank {0}"}}}})",
            rank_);
        writer_.event(
            R"({{"ph":"M","pid":{0},"tid":0,"ts":0,"name":"process_sort_index","args":{{"sort_index":{0}}}}})", rank_);
        for (int i = 0; i < program::kStreamCount; ++i) {
            const auto stream = static_cast<program::Stream>(i);
            if (used(stream)) name_track(i, std::string(program::name_of(stream)), place_of(stream));
            if (launches_on(stream))
                name_track(launch_track(stream), fmt::format("graphs on {}", program::name_of(stream)),
                           place_of(stream) + 1);
        }
    }

    /// Graphs and their copies next to the main stream, then the eager copies, then the others.
    [[nodiscard]] static int place_of(program::Stream stream) {
        using program::Stream;
        constexpr Stream kFirst[] = {Stream::main,      Stream::graph, Stream::graph_d2h,
                                     Stream::graph_h2d, Stream::d2h,   Stream::h2d};
        const auto found = std::find(std::begin(kFirst), std::end(kFirst), stream);
        const auto place = found != std::end(kFirst) ? found - std::begin(kFirst)
                                                     : std::ssize(kFirst) + static_cast<int>(program::index(stream));
        return static_cast<int>(2 * place);
    }

    void name_track(int track, const std::string& name, int place) {
        writer_.event(R"({{"ph":"M","pid":{},"tid":{},"ts":0,"name":"thread_name","args":{{"name":"{}"}}}})", rank_,
                      track, name);
        writer_.event(
            R"({{"ph":"M","pid":{0},"tid":{1},"ts":0,"name":"thread_sort_index","args":{{"sort_index":{2}}}}})", rank_,
            track, place);
    }

    /// Of a stream, the track that shows the graphs launched on it as wholes.
    [[nodiscard]] static int launch_track(program::Stream stream) {
        return program::kStreamCount + static_cast<int>(program::index(stream));
    }

    [[nodiscard]] bool launches_on(program::Stream stream) const {
        return std::any_of(launches_.begin(), launches_.end(),
                           [&](const GraphLaunch& launch) { return launch.stream == stream; });
    }

    [[nodiscard]] bool used(program::Stream stream) const {
        return std::any_of(timeline_.entries.begin(), timeline_.entries.end(),
                           [&](const TimelineEntry& entry) { return entry.stream == stream; });
    }

    /// Of a node, the captured instance says what it is and the launching one for whom, if that is a layer's.
    void slice(const TimelineEntry& entry) {
        const program::Instance& launched = program_.instances(program::RunStage::steady)[entry.instance];
        const program::Instance& issued =
            entry.in_graph() ? program_.instances(program::RunStage::capture)[entry.captured] : launched;
        const program::Instance& named = launched.microbatch < 0 ? issued : launched;
        const Operation& operation = program_.bodies[program::index(issued.body)].operations[entry.operation];
        const std::int64_t start = since_start(entry.start);
        writer_.event(
            R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"{}","args":{{"part":"{}","phase":"{}","layer":{},"microbatch":{}{}{}}}}})",
            rank_, program::index(entry.stream), Microseconds{start}, Microseconds{since_start(entry.end) - start},
            label(operation), program::name_of(operation.kind), layers::name_of(operation.part),
            layers::name_of(operation.phase), named.layer, named.microbatch, more(operation),
            entry.in_graph() ? R"(,"graph":true)" : "");
        if (operation.kind == OperationKind::copy) arrow(entry, issued, operation);
    }

    /// A graph from its first node to its last, and the event by which the main stream goes on before its end.
    void graph(const GraphLaunch& launch) {
        const program::Instance& instance = program_.instances(program::RunStage::steady)[launch.instance];
        const program::Graph& graph = program_.graphs[instance.graph];
        const std::int64_t start = since_start(launch.start);
        writer_.event(
            R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"graph","args":{{"layer":{},"microbatch":{},"nodes":{},"branches":{}}}}})",
            rank_, launch_track(launch.stream), Microseconds{start}, Microseconds{since_start(launch.end) - start},
            label(*launch.operation), instance.layer, instance.microbatch, graph.nodes, graph.branches);
        if (launch.external_event)
            writer_.event(R"({{"ph":"i","s":"t","pid":{},"tid":{},"ts":{},"name":"external event","cat":"graph"}})",
                          rank_, launch_track(launch.stream), Microseconds{since_start(*launch.external_event)});
    }

    [[nodiscard]] std::string label(const Operation& operation) const {
        if (operation.detail < labels_.size() && !program_.labels[operation.detail].empty())
            return labels_[operation.detail];
        return json_string(program::name_of(operation.kind));
    }

    [[nodiscard]] static std::string more(const Operation& operation) {
        std::string words;
        if (operation.kind == OperationKind::copy)
            words += fmt::format(R"(,"module":"{}")", types::name_of(operation.module));
        if (operation.bytes.count > 0) words += fmt::format(R"(,"bytes":{})", operation.bytes.count);
        return words;
    }

    /// An arrow needs the last copy out, which is known when the first copy back comes.
    void arrow(const TimelineEntry& entry, const program::Instance& instance, const Operation& operation) {
        const std::uint32_t frame = program_.scope_frames[instance.frames_begin + operation.scope];
        const GroupKey key{frame, operation.module};
        if (operation.direction == Direction::device_to_host) {
            away_[key] = entry;
            return;
        }
        const auto found = away_.find(key);
        if (found == away_.end()) return;
        const TimelineEntry out = found->second;
        away_.erase(found);
        const std::int64_t id = arrows_++;
        writer_.event(R"({{"ph":"s","pid":{},"tid":{},"ts":{},"id":{},"name":"on the host","cat":"offload"}})", rank_,
                      program::index(out.stream), Microseconds{since_start(out.start)}, id);
        writer_.event(R"({{"ph":"f","bp":"e","pid":{},"tid":{},"ts":{},"id":{},"name":"on the host","cat":"offload"}})",
                      rank_, program::index(entry.stream), Microseconds{since_start(entry.start)}, id);
    }

    struct Counter {
        const char* name;
        Bytes program::MemorySample::*value;
        std::optional<Bytes> last;
    };

    /// A value is written when it changes.
    void counters(std::optional<types::SimTime> until) {
        Counter all[] = {{"allocated bytes (host time)", &program::MemorySample::allocated, {}},
                         {"reserved bytes (host time)", &program::MemorySample::reserved, {}},
                         {"pinned bytes in use (host time)", &program::MemorySample::pinned, {}}};
        std::int64_t left = 0;
        for (const program::MemorySample& sample : timeline_.memory) {
            if (until && sample.time > *until) {
                ++left;
                continue;
            }
            for (Counter& counter : all) {
                const Bytes value = sample.*counter.value;
                if (counter.last == value) continue;
                counter.last = value;
                writer_.event(R"({{"ph":"C","pid":{},"tid":0,"ts":{},"name":"{}","args":{{"bytes":{}}}}})", rank_,
                              Microseconds{since_start(sample.time)}, counter.name, value.count);
            }
        }
        writer_.leave_out(left);
    }

    EventWriter& writer_;
    const StepProgram& program_;
    const StageTimeline& timeline_;
    std::int64_t rank_;
    std::int64_t& arrows_;
    std::vector<std::string> labels_;
    std::vector<GraphLaunch> launches_;
    std::map<GroupKey, TimelineEntry> away_;
};

}  // namespace

TraceSize write_trace(const search::TracedOutcome& traced, OutputFile& file) {
    EventWriter writer(file);
    std::int64_t arrows = 0;
    for (std::size_t i = 0; i < traced.programs.size(); ++i)
        RankTrace(writer, traced.programs[i], traced.timelines[i], arrows).write();
    return writer.finish();
}

}  // namespace stowage::reports
