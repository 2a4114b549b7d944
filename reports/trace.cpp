#include "reports/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

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

constexpr std::size_t kFlushAt = 1 << 20;

std::int64_t since_start(types::SimTime time) { return time.time_since_epoch().count(); }

/// Writes events one by one into the file.
class EventWriter {
public:
    explicit EventWriter(OutputFile& file) : file_(file) { text("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["); }

    template <class... Arguments>
    void event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        text(size_.events++ == 0 ? "\n" : ",\n");
        fmt::format_to(std::back_inserter(buffer_), format, std::forward<Arguments>(arguments)...);
        if (buffer_.size() >= kFlushAt) flush();
    }
    void leave_out(std::int64_t count) { size_.left_out += count; }
    TraceSize finish() {
        text("\n]}\n");
        flush();
        return size_;
    }

private:
    void text(std::string_view words) { buffer_.append(words.data(), words.data() + words.size()); }
    void flush() {
        file_.write({buffer_.data(), buffer_.size()});
        size_.bytes += types::Bytes{static_cast<std::int64_t>(buffer_.size())};
        buffer_.clear();
    }

    OutputFile& file_;
    fmt::memory_buffer buffer_;
    TraceSize size_;
};

/// Nanoseconds as microseconds with three decimals, without a detour over floating point.
struct Microseconds {
    std::int64_t nanoseconds;
};

/// A label as a JSON string; labels are plain words, but nothing is taken for granted.
std::string json_string(std::string_view text) {
    std::string result = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') result += '\\';
        if (static_cast<unsigned char>(letter) < 0x20)
            result += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
        else
            result += letter;
    }
    return result + '"';
}

}  // namespace
}  // namespace stowage::reports

template <>
struct fmt::formatter<stowage::reports::Microseconds> : fmt::formatter<std::string_view> {
    template <class Context>
    auto format(const stowage::reports::Microseconds& time, Context& context) const {
        return fmt::format_to(context.out(), "{}.{:03}", time.nanoseconds / 1000, time.nanoseconds % 1000);
    }
};

namespace stowage::reports {
namespace {

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
        name_tracks();
        const auto held = std::min<std::size_t>(timeline_.entries.size(), kMostTraceEvents);
        types::SimTime last{};
        for (std::size_t i = 0; i < held; ++i) {
            slice(timeline_.entries[i]);
            last = std::max(last, timeline_.entries[i].end);
        }
        writer_.leave_out(static_cast<std::int64_t>(timeline_.entries.size() - held));
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
            if (!used(stream)) continue;
            writer_.event(R"({{"ph":"M","pid":{},"tid":{},"ts":0,"name":"thread_name","args":{{"name":"{}"}}}})", rank_,
                          i, program::name_of(stream));
            writer_.event(
                R"({{"ph":"M","pid":{0},"tid":{1},"ts":0,"name":"thread_sort_index","args":{{"sort_index":{1}}}}})",
                rank_, i);
        }
    }

    [[nodiscard]] bool used(program::Stream stream) const {
        return std::any_of(timeline_.entries.begin(), timeline_.entries.end(),
                           [&](const TimelineEntry& entry) { return entry.stream == stream; });
    }

    void slice(const TimelineEntry& entry) {
        const program::Instance& instance = program_.instances(program::RunStage::steady)[entry.instance];
        const Operation& operation = program_.bodies[program::index(instance.body)].operations[entry.operation];
        const std::int64_t start = since_start(entry.start);
        writer_.event(
            R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":"{}","args":{{"part":"{}","phase":"{}","layer":{},"microbatch":{}{}}}}})",
            rank_, program::index(entry.stream), Microseconds{start}, Microseconds{since_start(entry.end) - start},
            label(operation), program::name_of(operation.kind), layers::name_of(operation.part),
            layers::name_of(operation.phase), instance.layer, instance.microbatch, more(operation));
        if (operation.kind == OperationKind::copy) arrow(entry, instance, operation);
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
