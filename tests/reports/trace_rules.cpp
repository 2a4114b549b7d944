#include "tests/reports/trace_rules.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace stowage::reports {
namespace {

using nlohmann::json;
using Track = std::pair<std::int64_t, std::int64_t>;

struct Slice {
    std::int64_t begin;
    std::int64_t end;
};

struct Arrow {
    int starts = 0;
    int finishes = 0;
    std::int64_t start = 0;
    std::int64_t finish = 0;
};

/// Whole nanoseconds: comparing microseconds in floating point would find overlaps that are none.
std::int64_t nanoseconds(const json& microseconds) { return std::llround(microseconds.get<double>() * 1e3); }

class Checker {
public:
    std::vector<std::string> run(const json& document) {
        if (!document.is_object() || !document.contains("traceEvents") || !document["traceEvents"].is_array())
            return {"no list traceEvents"};
        for (const json& event : document["traceEvents"]) check(event);
        check_nesting();
        check_arrows();
        return std::move(problems_);
    }

private:
    void problem(const std::string& what, const json& event) { problems_.push_back(what + ": " + event.dump()); }

    void check(const json& event) {
        for (const char* key : {"pid", "tid", "ts"})
            if (!event.contains(key) || !event[key].is_number()) return problem(std::string("no number ") + key, event);
        if (!event.contains("ph") || !event["ph"].is_string()) return problem("no ph", event);
        const std::string phase = event["ph"];
        if (phase == "X") return check_slice(event);
        if (phase == "C") return check_counter(event);
        if (phase == "M") return check_metadata(event);
        if (phase == "s" || phase == "f") return check_arrow(event, phase == "s");
        if (phase == "i") return check_instant(event);
        problem("unknown ph", event);
    }

    void check_slice(const json& event) {
        if (!event.contains("dur") || !event["dur"].is_number() || event["dur"].get<double>() < 0)
            return problem("a slice without duration", event);
        if (!event.contains("name") || event["name"].get<std::string>().empty())
            return problem("a slice without name", event);
        const std::int64_t begin = nanoseconds(event["ts"]);
        slices_[{event["pid"], event["tid"]}].push_back({begin, begin + nanoseconds(event["dur"])});
    }

    void check_counter(const json& event) {
        if (!event.contains("name") || !event.contains("args") || event["args"].empty())
            return problem("a counter without name or value", event);
        for (const json& value : event["args"])
            if (!value.is_number()) problem("a counter that is no number", event);
    }

    void check_instant(const json& event) {
        if (event.value("name", "").empty()) return problem("an instant without name", event);
        const std::string reach = event.value("s", "");
        if (reach != "t" && reach != "p" && reach != "g") problem("an instant without its reach", event);
    }

    void check_metadata(const json& event) {
        static const std::set<std::string> known{"process_name", "process_labels", "process_sort_index", "thread_name",
                                                 "thread_sort_index"};
        if (!known.contains(event.value("name", ""))) problem("unknown metadata", event);
    }

    void check_arrow(const json& event, bool is_start) {
        if (!event.contains("id") || !event.contains("name")) return problem("an arrow without id or name", event);
        Arrow& arrow = arrows_[event["id"].dump()];
        (is_start ? arrow.starts : arrow.finishes) += 1;
        (is_start ? arrow.start : arrow.finish) = nanoseconds(event["ts"]);
        ends_.push_back({{event["pid"], event["tid"]}, nanoseconds(event["ts"])});
    }

    void check_nesting() {
        for (auto& [track, slices] : slices_) {
            std::sort(slices.begin(), slices.end(), [](const Slice& left, const Slice& right) {
                return std::pair(left.begin, -left.end) < std::pair(right.begin, -right.end);
            });
            std::vector<std::int64_t> open;
            for (const Slice& slice : slices) {
                while (!open.empty() && open.back() <= slice.begin) open.pop_back();
                if (!open.empty() && slice.end > open.back())
                    problems_.push_back("slices of one thread overlap at " + std::to_string(slice.begin) + " ns");
                open.push_back(slice.end);
            }
        }
    }

    void check_arrows() {
        for (const auto& [id, arrow] : arrows_) {
            if (arrow.starts != 1 || arrow.finishes != 1) problems_.push_back("arrow " + id + " is not one pair");
            if (arrow.start > arrow.finish) problems_.push_back("arrow " + id + " goes back in time");
        }
        std::map<Track, std::set<std::int64_t>> begins;
        for (const auto& [track, slices] : slices_)
            for (const Slice& slice : slices) begins[track].insert(slice.begin);
        for (const auto& [track, at] : ends_)
            if (!begins[track].contains(at)) problems_.push_back("an arrow ends on no slice, at " + std::to_string(at));
    }

    std::vector<std::string> problems_;
    std::map<Track, std::vector<Slice>> slices_;
    std::map<std::string, Arrow> arrows_;
    std::vector<std::pair<Track, std::int64_t>> ends_;
};

}  // namespace

std::vector<std::string> trace_problems(const json& document) { return Checker().run(document); }

}  // namespace stowage::reports
