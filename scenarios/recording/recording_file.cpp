#include "scenarios/recording/recording_file.hpp"

#include <nlohmann/json.hpp>

#include "scenarios/recording/event_table.hpp"
#include "scenarios/recording/recording_keys.hpp"

namespace stowage::recording {
namespace {

using Json = nlohmann::ordered_json;

/// Whole nanoseconds are at most three decimals.
double microseconds(Nanoseconds time) { return types::in_microseconds(time); }

template <class T>
Json or_null(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

Json machine_json(const Machine& machine) {
    return {{"device", machine.device},
            {"driver", machine.driver},
            {"runtime", machine.runtime},
            {"cublaslt", machine.cublaslt},
            {"cudnn", machine.cudnn},
            {"multiprocessors", machine.multiprocessors},
            {"memory_bytes", machine.memory.count}};
}

Json sample_json(const DeviceSample& sample) {
    return {{"when", sample.when},
            {"sm_clock_mhz", or_null(sample.sm_clock_mhz)},
            {"memory_clock_mhz", or_null(sample.memory_clock_mhz)},
            {"power_watts", or_null(sample.power_watts)},
            {"temperature_celsius", or_null(sample.temperature_celsius)},
            {"throttle_reasons", sample.throttle_reasons}};
}

Json list_of_times(const std::vector<Nanoseconds>& times) {
    Json list = Json::array();
    for (const Nanoseconds time : times) list.push_back(microseconds(time));
    return list;
}

Json sites_json(const std::vector<Site>& sites) {
    Json list = Json::array();
    for (const Site& site : sites)
        list.push_back({{"module", site.module}, {"phase", site.phase}, {"work", site.work}});
    return list;
}

Json classes_json(const std::vector<EventClass>& classes) {
    Json list = Json::array();
    for (const EventClass& one : classes) {
        Json entry{{"site", one.site}, {"kind", types::name_of(one.kind)}, {"stream", one.stream}};
        if (one.name != 0) entry["kernel"] = one.name;
        if (one.bytes.count != 0) entry["bytes"] = one.bytes.count;
        if (one.in_graph) entry["in_graph"] = true;
        list.push_back(std::move(entry));
    }
    return list;
}

template <class Table, std::size_t N>
Json columns_json(const Table& table, const Keys<Table, N>& keys) {
    Json columns = Json::object();
    for (const auto& [name, member] : keys) columns[name] = lines_of(table.*member);
    return columns;
}

Json groups_json(const std::vector<Group>& groups) {
    const GroupTable table = table_of(groups);
    return {{"modules", table.modules},
            {"groups", table.module.size()},
            {"columns", columns_json(table, kGroupColumns)},
            {"tensors", table.storage.size()},
            {"tensor_columns", columns_json(table, kTensorColumns)}};
}

Json step_json(const Step& step) {
    const EventTable table = table_of(step.events);
    return {{"stage", step.stage},
            {"graphs", step.graphs},
            {"duration_us", microseconds(step.duration)},
            {"time_us", microseconds(step.time)},
            {"dropped", step.dropped},
            {"unmatched", step.unmatched},
            {"events", step.events.size()},
            {"classes", classes_json(table.classes)},
            {"columns", columns_json(table, kEventColumns)}};
}

/// Lists and mappings that hold no others stand on one line.
bool is_flat(const Json& value) {
    for (const Json& one : value)
        if (one.is_structured() && !one.empty()) return false;
    return true;
}

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void append(std::string& text, const Json& value, std::size_t depth) {
    const bool lines = value.is_array() && value.size() > 1 && value.front().is_string();  // of a column, or names
    if (!value.is_structured() || (is_flat(value) && !lines && depth > 0)) {
        text += dumped(value);
        return;
    }
    const std::string indent(depth + 1, ' ');
    text += value.is_object() ? "{" : "[";
    bool first = true;
    for (const auto& [key, one] : value.items()) {
        text += (first ? "\n" : ",\n") + indent;
        if (value.is_object()) text += dumped(key) + ": ";
        append(text, one, depth + 1);
        first = false;
    }
    text += "\n" + std::string(depth, ' ') + (value.is_object() ? "}" : "]");
}

}  // namespace

std::string recording_text(const Recording& recording) {
    Json document{{"schema", kRecordingSchema},
                  {"source", recording.source},
                  {"implementation", recording.implementation},
                  {"scenario_name", recording.scenario_name},
                  {"pipeline_rank", recording.pipeline_rank},
                  {"machine", machine_json(recording.machine)},
                  {"samples", Json::array()},
                  {"step_times_us", list_of_times(recording.step_times)},
                  {"scenario", recording.scenario_text},
                  {"sites", sites_json(recording.sites)},
                  {"kernels", recording.names},
                  {"saved", groups_json(recording.groups)},
                  {"steps", Json::array()}};
    for (const DeviceSample& sample : recording.samples) document["samples"].push_back(sample_json(sample));
    for (const Step& step : recording.steps) document["steps"].push_back(step_json(step));
    std::string text;
    append(text, document, 0);
    return text + "\n";
}

}  // namespace stowage::recording
