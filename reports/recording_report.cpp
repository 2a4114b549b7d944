#include "reports/recording_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "reports/table.hpp"
#include "reports/units.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::reports {
namespace {

using recording::Group;
using recording::Recording;
using recording::Step;
using types::Nanoseconds;

constexpr const char* kRecord = "record";
constexpr const char* kEager = "eager";

Json or_null(double value, bool known) { return known ? Json(value) : Json(nullptr); }

double mean_of(const std::vector<Nanoseconds>& times) {
    Nanoseconds sum{0};
    for (const Nanoseconds time : times) sum += time;
    return times.empty() ? 0 : types::in_microseconds(sum) / static_cast<double>(times.size());
}

std::vector<Nanoseconds> times_of(const Recording& recording, const std::string& stage) {
    std::vector<Nanoseconds> times;
    for (const Step& step : recording.steps)
        if (step.stage == stage && step.time.count() > 0) times.push_back(step.time);
    return times;
}

Json step_json(const Step& step) {
    return {{"stage", step.stage},
            {"graphs", step.graphs},
            {"duration_us", file_microseconds(step.duration)},
            {"time_us", or_null(file_microseconds(step.time), step.time.count() > 0)},
            {"events", step.events.size()},
            {"dropped", step.dropped},
            {"unmatched", step.unmatched}};
}

/// Mean time of a step by module and phase, the busiest module first.
Json modules_json(const Recording& recording, const std::string& stage) {
    std::map<std::string, std::map<std::string, Nanoseconds>> sums;
    std::map<std::string, Nanoseconds> totals;
    std::int64_t steps = 0;
    for (const Step& step : recording.steps) {
        if (step.stage != stage) continue;
        ++steps;
        for (const recording::Event& event : step.events) {
            const recording::Site& site = recording.sites.at(event.site);
            sums[site.module][site.phase] += event.duration;
            totals[site.module] += event.duration;
        }
    }
    std::vector<std::pair<Nanoseconds, std::string>> order;
    for (const auto& [module, total] : totals) order.emplace_back(-total, module);
    std::sort(order.begin(), order.end());
    Json modules = Json::array();
    for (const auto& [total, module] : order) {
        Json phases = Json::object();
        for (const auto& [phase, sum] : sums[module]) phases[phase] = file_microseconds(sum / steps);
        modules.push_back({{"module", module}, {"total_us", file_microseconds(-total / steps)}, {"phases_us", phases}});
    }
    return modules;
}

struct Kept {
    std::int64_t groups = 0;
    std::int64_t tensors = 0;
    std::int64_t bytes = 0;
    std::int64_t offloaded = 0;
    std::set<std::uint32_t> storages;
};

/// By module, in the order of the forward.
Json groups_json(const Recording& recording) {
    std::vector<std::string> order;
    std::map<std::string, Kept> modules;
    for (const Group& group : recording.groups) {
        if (group.microbatch > 0) continue;
        const auto [entry, is_new] = modules.try_emplace(group.module);
        if (is_new) order.push_back(group.module);
        Kept& kept = entry->second;
        ++kept.groups;
        for (const recording::Tensor& tensor : group.tensors) {
            ++kept.tensors;
            kept.bytes += tensor.bytes.count;
            if (tensor.offloaded) kept.offloaded += tensor.bytes.count;
            kept.storages.insert(tensor.storage);
        }
    }
    Json list = Json::array();
    for (const std::string& module : order) {
        const Kept& kept = modules.at(module);
        list.push_back({{"module", module},
                        {"groups", kept.groups},
                        {"tensors", kept.tensors},
                        {"storages", kept.storages.size()},
                        {"bytes", kept.bytes},
                        {"offloaded_bytes", kept.offloaded}});
    }
    return list;
}

double real(const Json& object, const char* key) { return object.at(key).get<double>(); }
std::int64_t count(const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); }
std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::string line(const char* label, const std::string& words) {
    return fmt::format("  {:<10}{}\n", label, wrapped(words, 12));
}

std::string steps_words(const Json& summary) {
    std::string words;
    for (const Json& step : summary.at("steps")) {
        words += (words.empty() ? "" : "; ") + text(step, "stage");
        if (!step.at("time_us").is_null()) words += " " + milliseconds(real(step, "time_us")) + " ms";
        words += fmt::format(", {} events", grouped(count(step, "events")));
    }
    return words;
}

std::string cost_words(const Json& summary) {
    const Json& cost = summary.at("recording_cost");
    std::string words = fmt::format("{} records dropped, {} activities without a mark", count(summary, "dropped"),
                                    count(summary, "unmatched"));
    if (!cost.is_null())
        words += fmt::format("; recorded steps took {:+.2f} % longer than the others", 100 * cost.get<double>());
    return words;
}

std::string head(const Json& summary) {
    std::string section =
        fmt::format("{}: pipeline rank {} recorded, layers as {} runs them\n\n", text(summary, "scenario_name"),
                    count(summary, "pipeline_rank"), text(summary, "implementation"));
    section += line("device", text(summary, "device"));
    if (!summary.at("step_time_us").is_null())
        section +=
            line("step", fmt::format("{} ms, median of {} eager steps that were not recorded",
                                     milliseconds(real(summary, "step_time_us")), count(summary, "timed_steps")));
    section += line("recorded", steps_words(summary));
    return section + line("records", cost_words(summary));
}

std::string modules_table(const Json& modules, const std::string& heading) {
    if (modules.empty()) return {};
    static const std::vector<std::string> kPhases{"forward", "backward", "weight_gradient", "recompute"};
    Table table({{"module", Table::Align::left},
                 {"forward"},
                 {"backward"},
                 {"weight gradient"},
                 {"recompute"},
                 {"other"},
                 {"all, ms"}});
    for (const Json& module : modules) {
        const Json& phases = module.at("phases_us");
        std::vector<std::string> cells{text(module, "module").empty() ? "(no mark)" : text(module, "module")};
        double other = real(module, "total_us");
        for (const std::string& phase : kPhases) {
            const double time = phases.contains(phase) ? phases.at(phase).get<double>() : 0;
            other -= time;
            cells.push_back(time > 0 ? milliseconds(time) : "");
        }
        cells.push_back(other > 0.5 ? milliseconds(other) : "");
        cells.push_back(milliseconds(real(module, "total_us")));
        table.add(std::move(cells));
    }
    return "\n" + heading + "\n" + table.text();
}

std::string groups_table(const Json& groups) {
    if (groups.empty()) return {};
    Table table({{"module", Table::Align::left}, {"groups"}, {"tensors"}, {"storages"}, {"GiB"}, {"moved, GiB"}});
    for (const Json& group : groups)
        table.add({text(group, "module"), std::to_string(count(group, "groups")),
                   std::to_string(count(group, "tensors")), std::to_string(count(group, "storages")),
                   fmt::format("{:.4f}", real(group, "bytes") / (1 << 30)),
                   fmt::format("{:.4f}", real(group, "offloaded_bytes") / (1 << 30))});
    return "\nKept for the backward by one microbatch\n" + table.text();
}

}  // namespace

Json recording_summary(const Recording& recording) {
    const double unrecorded = mean_of(recording.step_times);
    const double recorded = mean_of(times_of(recording, kEager));
    std::uint64_t dropped = 0;
    std::uint64_t unmatched = 0;
    Json steps = Json::array();
    std::vector<std::string> stages;
    for (const Step& step : recording.steps) {
        dropped += step.dropped;
        unmatched += step.unmatched;
        steps.push_back(step_json(step));
        const bool known = std::find(stages.begin(), stages.end(), step.stage) != stages.end();
        if (!known && step.stage != kRecord) stages.push_back(step.stage);
    }
    Json times = Json::object();
    for (const std::string& stage : stages) times[stage] = modules_json(recording, stage);
    return {{"schema", kProfileSchema},
            {"scenario_name", recording.scenario_name},
            {"implementation", recording.implementation},
            {"pipeline_rank", recording.pipeline_rank},
            {"device", recording.machine.device},
            {"timed_steps", recording.step_times.size()},
            {"step_time_us",
             or_null(file_microseconds(recording::median(recording.step_times)), !recording.step_times.empty())},
            {"recording_cost", or_null(recorded / unrecorded - 1, recorded > 0 && unrecorded > 0)},
            {"dropped", dropped},
            {"unmatched", unmatched},
            {"steps", steps},
            {"modules", times},
            {"saved", groups_json(recording)}};
}

std::string recording_text(const Json& summary) {
    std::string text = head(summary);
    for (const auto& [stage, modules] : summary.at("modules").items())
        text += modules_table(modules, "Time of the device in a step (" + stage + "), ms");
    return text + groups_table(summary.at("saved"));
}

}  // namespace stowage::reports
