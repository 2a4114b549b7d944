#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "scenarios/recording/event_table.hpp"
#include "scenarios/recording/recording_file.hpp"
#include "scenarios/recording/recording_keys.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::recording {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{64} << 20;
constexpr std::int64_t kMostRows = 10'000'000;
constexpr std::size_t kMostShown = 60;
constexpr int kDeepest = 16;

[[noreturn]] void fail_reading(const std::string& file, const std::string& reason) {
    throw types::InputError(file + ": error: " + reason);
}

/// A value of the file and where it stands.
class Value {
public:
    Value(const Json& json, std::string path, const std::string& file)
        : json_(json), path_(std::move(path)), file_(file) {}

    [[noreturn]] void fail(const std::string& reason) const {
        throw types::InputError(file_ + ": error: " + (path_.empty() ? "" : path_ + ": ") + reason +
                                "\nhint: 'stowage profile' writes such files");
    }
    [[noreturn]] void expected(const std::string& what) const {
        std::string found = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
        if (found.size() > kMostShown) found = found.substr(0, kMostShown) + "...";
        fail("expected " + what + ", found " + found);
    }

    [[nodiscard]] Value at(const char* key) const {
        if (!json_.is_object()) expected("a mapping");
        const auto found = json_.find(key);
        if (found == json_.end()) fail(std::string("lacks the key '") + key + "'");
        return {*found, path_.empty() ? key : path_ + "." + key, file_};
    }
    [[nodiscard]] bool has(const char* key) const { return json_.is_object() && json_.contains(key); }
    [[nodiscard]] bool is_null() const { return json_.is_null(); }

    [[nodiscard]] std::vector<Value> list() const {
        if (!json_.is_array()) expected("a list");
        std::vector<Value> values;
        for (std::size_t i = 0; i < json_.size(); ++i)
            values.emplace_back(json_[i], path_ + "[" + std::to_string(i) + "]", file_);
        return values;
    }

    [[nodiscard]] std::string text() const {
        if (!json_.is_string()) expected("a text");
        return json_.get<std::string>();
    }
    [[nodiscard]] bool truth() const {
        if (!json_.is_boolean()) expected("true or false");
        return json_.get<bool>();
    }
    [[nodiscard]] double real() const {
        if (!json_.is_number()) expected("a number");
        return json_.get<double>();
    }
    [[nodiscard]] std::int64_t whole(std::int64_t least, std::int64_t most) const {
        const bool unsigned_fits =
            !json_.is_number_unsigned() || json_.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
        if (!json_.is_number_integer() || !unsigned_fits || json_.get<std::int64_t>() < least ||
            json_.get<std::int64_t>() > most)
            expected("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
        return json_.get<std::int64_t>();
    }
    /// Microseconds of at most three decimals.
    [[nodiscard]] Nanoseconds time() const {
        constexpr double kMost = 1e12;  // eleven days; whole nanoseconds of it are exact
        const double microseconds = real();
        if (!(std::abs(microseconds) <= kMost)) expected("microseconds, at most 1e12");
        return Nanoseconds{std::llround(microseconds * 1e3)};
    }

private:
    const Json& json_;
    std::string path_;
    const std::string& file_;
};

constexpr std::int64_t kMostUnsigned = UINT32_MAX;
constexpr std::int64_t kMostInt = INT32_MAX;
constexpr std::int64_t kMost = INT64_MAX;

std::uint32_t number(const Value& value, std::int64_t most = kMostUnsigned) {
    return static_cast<std::uint32_t>(value.whole(0, most));
}

std::optional<unsigned> optional_number(const Value& value) {
    return value.is_null() ? std::nullopt : std::optional<unsigned>(number(value));
}

std::vector<std::string> texts(const Value& value) {
    std::vector<std::string> texts;
    for (const Value& one : value.list()) texts.push_back(one.text());
    return texts;
}

Machine machine_of(const Value& value) {
    return {value.at("device").text(),
            value.at("driver").text(),
            value.at("runtime").text(),
            value.at("cublaslt").text(),
            value.at("cudnn").text(),
            static_cast<int>(value.at("multiprocessors").whole(0, kMostInt)),
            Bytes{value.at("memory_bytes").whole(0, kMost)}};
}

DeviceSample sample_of(const Value& value) {
    DeviceSample sample;
    sample.when = value.at("when").text();
    sample.sm_clock_mhz = optional_number(value.at("sm_clock_mhz"));
    sample.memory_clock_mhz = optional_number(value.at("memory_clock_mhz"));
    if (const Value power = value.at("power_watts"); !power.is_null()) sample.power_watts = power.real();
    sample.temperature_celsius = optional_number(value.at("temperature_celsius"));
    sample.throttle_reasons = texts(value.at("throttle_reasons"));
    return sample;
}

Site site_of(const Value& value) {
    return {value.at("module").text(), value.at("phase").text(), value.at("work").text()};
}

EventKind kind_of(const Value& value) {
    if (const auto kind = types::parse_name<EventKind>(value.text())) return *kind;
    value.expected("kernel, device_to_host, host_to_device, device_to_device or memset");
}

EventClass class_of(const Value& value, const Recording& recording) {
    EventClass one;
    one.site = number(value.at("site"), std::ssize(recording.sites) - 1);
    one.kind = kind_of(value.at("kind"));
    one.stream = number(value.at("stream"));
    if (value.has("kernel")) one.name = number(value.at("kernel"), std::ssize(recording.names) - 1);
    if (value.has("bytes")) one.bytes = Bytes{value.at("bytes").whole(0, kMost)};
    one.in_graph = value.has("in_graph") && value.at("in_graph").truth();
    return one;
}

template <class Table, std::size_t N>
void read_columns(const Value& columns, const Keys<Table, N>& keys, std::size_t rows, Table& table) {
    for (const auto& [name, member] : keys) {
        const Value value = columns.at(name);
        auto column = column_of(texts(value), rows);
        if (const auto* const fault = std::get_if<ColumnFault>(&column))
            value.fail("line " + std::to_string(fault->line) + ": " + fault->reason);
        table.*member = std::get<Column>(std::move(column));
    }
}

std::size_t rows_of(const Value& value) { return static_cast<std::size_t>(value.whole(0, kMostRows)); }

/// What the table's columns say, or where they are wrong.
template <class Decode>
auto decoded(const Value& value, Decode decode) {
    try {
        return decode();
    } catch (const TableError& error) {
        value.fail(error.what());
    }
}

std::vector<Group> groups_of(const Value& value) {
    GroupTable table;
    table.modules = texts(value.at("modules"));
    read_columns(value.at("columns"), kGroupColumns, rows_of(value.at("groups")), table);
    read_columns(value.at("tensor_columns"), kTensorColumns, rows_of(value.at("tensors")), table);
    return decoded(value, [&] { return recording::groups_of(table); });
}

Step step_of(const Value& value, const Recording& recording) {
    Step step;
    step.stage = value.at("stage").text();
    step.graphs = value.at("graphs").truth();
    step.duration = value.at("duration_us").time();
    step.time = value.at("time_us").time();
    step.dropped = static_cast<std::uint64_t>(value.at("dropped").whole(0, kMost));
    step.unmatched = static_cast<std::uint64_t>(value.at("unmatched").whole(0, kMost));
    EventTable table;
    for (const Value& one : value.at("classes").list()) table.classes.push_back(class_of(one, recording));
    const Value columns = value.at("columns");
    read_columns(columns, kEventColumns, rows_of(value.at("events")), table);
    step.events = decoded(columns, [&] { return events_of(table); });
    return step;
}

Recording recording_of(const Value& document) {
    Recording recording;
    recording.source = document.at("source").text();
    recording.implementation = document.at("implementation").text();
    recording.scenario_name = document.at("scenario_name").text();
    recording.pipeline_rank = document.at("pipeline_rank").whole(0, kMostInt);
    recording.machine = machine_of(document.at("machine"));
    for (const Value& sample : document.at("samples").list()) recording.samples.push_back(sample_of(sample));
    for (const Value& time : document.at("step_times_us").list()) recording.step_times.push_back(time.time());
    recording.scenario_text = document.at("scenario").text();
    for (const Value& site : document.at("sites").list()) recording.sites.push_back(site_of(site));
    recording.names = texts(document.at("kernels"));
    recording.groups = groups_of(document.at("saved"));
    for (const Value& step : document.at("steps").list()) recording.steps.push_back(step_of(step, recording));
    return recording;
}

}  // namespace

Recording parse_recording(const std::string& text, const std::string& file) {
    Json json;
    try {
        json = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
            if (depth > kDeepest) fail_reading(file, "found more than 16 levels of nesting, expected a recording");
            return true;
        });
    } catch (const Json::parse_error& error) {
        fail_reading(file, std::string("not JSON: ") + error.what() + "\nhint: expected " + kRecordingSchema +
                               ", which 'stowage profile' writes");
    }
    const Value document(json, "", file);
    const Value schema = document.at("schema");
    if (schema.text() != kRecordingSchema) schema.expected(kRecordingSchema);
    return recording_of(document);
}

Recording read_recording(const std::filesystem::path& path) {
    const std::string file = path.string();
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) fail_reading(file, "is a folder, expected a file");
    errno = 0;
    std::FILE* const opened = std::fopen(path.c_str(), "rbe");
    if (opened == nullptr) fail_reading(file, std::strerror(errno));
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closing(opened, &std::fclose);
    std::string text;
    std::array<char, 1 << 16> piece{};
    while (const std::size_t count = std::fread(piece.data(), 1, piece.size(), opened)) {
        text.append(piece.data(), count);
        if (text.size() > kLargestFile) fail_reading(file, "is larger than 64 MiB, expected a recording");
    }
    if (std::ferror(opened) != 0) fail_reading(file, "reading it failed");
    return parse_recording(text, file);
}

}  // namespace stowage::recording
