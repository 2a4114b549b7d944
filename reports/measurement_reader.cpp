#include "reports/measurement_reader.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "reports/document.hpp"

namespace stowage::reports {
namespace {

using recording::Measurement;
using types::Bytes;
using types::Nanoseconds;

/// A value of the document and how it is reached.
class Place {
public:
    Place(const Json& value, const std::string& file, std::string path)
        : value_(&value), file_(&file), path_(std::move(path)) {}

    [[nodiscard]] Place at(const char* key) const {
        const std::string path = path_.empty() ? key : path_ + "." + key;
        if (!value_->is_object()) fail("an object");
        const auto found = value_->find(key);
        if (found == value_->end()) fail_document(*file_, path + " is missing");
        return {*found, *file_, path};
    }
    [[nodiscard]] std::vector<Place> list() const {
        if (!value_->is_array()) fail("a list");
        std::vector<Place> places;
        for (std::size_t i = 0; i < value_->size(); ++i)
            places.emplace_back((*value_)[i], *file_, fmt::format("{}[{}]", path_, i));
        return places;
    }
    [[nodiscard]] bool is_null() const { return value_->is_null(); }

    [[nodiscard]] std::string text() const {
        if (!value_->is_string()) fail("text");
        return value_->get<std::string>();
    }
    /// At most `largest`.
    [[nodiscard]] std::int64_t count(std::int64_t largest = std::numeric_limits<std::int64_t>::max()) const {
        const bool whole = value_->is_number_unsigned() || (value_->is_number_integer() && *value_ >= 0);
        if (!whole || value_->get<std::uint64_t>() > static_cast<std::uint64_t>(largest))
            fail(largest == std::numeric_limits<std::int64_t>::max()
                     ? "a whole number from 0"
                     : fmt::format("a whole number from 0 to {}", largest));
        return value_->get<std::int64_t>();
    }
    [[nodiscard]] std::int64_t difference() const {
        if (!value_->is_number_integer()) fail("a whole number");
        return value_->get<std::int64_t>();
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number()) fail("a number");
        return value_->get<double>();
    }
    [[nodiscard]] Nanoseconds time() const {
        constexpr double kLongest = 1e15;  // 30 years; far below what nanoseconds can count
        const double microseconds = number();
        if (!(microseconds >= 0 && microseconds < kLongest)) fail("microseconds from 0");
        return Nanoseconds{std::llround(microseconds * 1e3)};
    }
    [[nodiscard]] std::uint64_t digest() const {
        constexpr std::size_t kDigits = 16;
        const std::string digits = text();
        std::uint64_t value = 0;
        const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
        if (digits.size() != kDigits || read.ptr != digits.data() + kDigits) fail("16 hexadecimal digits");
        return value;
    }
    /// Of text that bits_text wrote: four a hexadecimal digit.
    [[nodiscard]] std::vector<bool> bits(std::int64_t count) const {
        const std::string digits = text();
        constexpr std::string_view kDigits = "0123456789abcdef";
        if (static_cast<std::int64_t>(digits.size()) != count / 4 + (count % 4 != 0 ? 1 : 0))
            fail(fmt::format("{} hexadecimal digits", count / 4 + (count % 4 != 0 ? 1 : 0)));
        std::vector<bool> bits;
        for (std::int64_t at = 0; at < count; ++at) {
            const std::size_t value = kDigits.find(digits[static_cast<std::size_t>(at / 4)]);
            if (value == std::string_view::npos) fail("hexadecimal digits");
            bits.push_back((value >> (3 - at % 4) & 1) != 0);
        }
        return bits;
    }

private:
    [[noreturn]] void fail(const std::string& expected) const {
        std::string found = value_->is_structured() ? (value_->is_object() ? "an object" : "a list") : value_->dump();
        fail_document(*file_, fmt::format("{}: found {}, expected {}", path_, found, expected));
    }

    const Json* value_;
    const std::string* file_;
    std::string path_;
};

Bytes bytes_of(const Place& place) { return Bytes{place.count()}; }

std::vector<Nanoseconds> times_of(const Place& place) {
    std::vector<Nanoseconds> times;
    if (place.is_null()) return times;
    for (const Place& time : place.at("all").list()) times.push_back(time.time());
    return times;
}

recording::Machine machine_of(const Place& place) {
    recording::Machine machine;
    machine.device = place.at("device").text();
    machine.driver = place.at("driver").text();
    machine.runtime = place.at("runtime").text();
    machine.cublaslt = place.at("cublaslt").text();
    machine.cudnn = place.at("cudnn").text();
    machine.multiprocessors =
        static_cast<int>(place.at("multiprocessors").count(std::numeric_limits<std::int32_t>::max()));
    machine.memory = bytes_of(place.at("memory_bytes"));
    return machine;
}

std::optional<unsigned> optional_count(const Place& place) {
    if (place.is_null()) return std::nullopt;
    return static_cast<unsigned>(place.count(std::numeric_limits<std::uint32_t>::max()));
}

recording::DeviceSample sample_of(const Place& place) {
    recording::DeviceSample sample;
    sample.when = place.at("when").text();
    sample.sm_clock_mhz = optional_count(place.at("sm_clock_mhz"));
    sample.memory_clock_mhz = optional_count(place.at("memory_clock_mhz"));
    if (const Place power = place.at("power_watts"); !power.is_null()) sample.power_watts = power.number();
    sample.temperature_celsius = optional_count(place.at("temperature_celsius"));
    for (const Place& reason : place.at("throttle_reasons").list()) sample.throttle_reasons.push_back(reason.text());
    return sample;
}

recording::StageMemory stage_of(const Place& place) {
    return {place.at("stage").text(), bytes_of(place.at("peak_allocated_bytes")),
            bytes_of(place.at("peak_reserved_bytes")), Bytes{place.at("driver_used_bytes").difference()},
            place.at("device_calls").count()};
}

recording::CopyTime copies_of(const Place& place) {
    return {bytes_of(place.at("bytes")), place.at("busy_us").time(), place.at("from_16_mib_gb_per_s").number() * 1e9};
}

recording::LabelTime label_of(const Place& place) {
    return {place.at("label").text(),    place.at("stream").text(),      place.at("operations").count(),
            place.at("kernels").count(), place.at("measured_us").time(), place.at("predicted_us").time()};
}

std::optional<recording::Profile> profile_of(const Place& place) {
    if (place.is_null()) return std::nullopt;
    recording::Profile profile;
    profile.duration = place.at("duration_us").time();
    profile.main_busy = place.at("main_stream_busy_us").time();
    profile.exposed_copy = place.at("exposed_copy_us").time();
    profile.modelled_waits = place.at("modelled_waits_us").time();
    profile.device_to_host = copies_of(place.at("device_to_host"));
    profile.host_to_device = copies_of(place.at("host_to_device"));
    profile.dropped_records = place.at("dropped_records").count();
    profile.unmatched_records = place.at("unmatched_records").count();
    for (const Place& label : place.at("labels").list()) profile.labels.push_back(label_of(label));
    return profile;
}

void read_results(const Place& top, Measurement& measurement) {
    for (const Place& loss : top.at("losses").list())
        measurement.losses.push_back(loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.number());
    const Place digests = top.at("digests");
    measurement.run_digest = digests.at("run").digest();
    measurement.digested_steps = digests.at("steps").count();
    for (const Place& digest : digests.at("last_step").list())
        measurement.digests.push_back({digest.at("name").text(), digest.at("digest").digest()});
}

void read_memory(const Place& top, Measurement& measurement) {
    for (const Place& stage : top.at("memory").list()) measurement.memory.push_back(stage_of(stage));
    measurement.steady_peak_allocated = bytes_of(top.at("peak_allocated_bytes"));
    measurement.steady_peak_reserved = bytes_of(top.at("peak_reserved_bytes"));
    measurement.allocator_answers = top.at("allocator_answers").count();
    const Place answers = top.at("event_answers");
    measurement.event_answers = answers.at("bits").bits(answers.at("count").count());
    measurement.pinned = bytes_of(top.at("pinned_bytes"));
    measurement.pinned_placement = top.at("pinned_placement").text();
}

void read_graphs(const Place& graphs, Measurement& measurement) {
    measurement.graphs = graphs.at("kind").text();
    measurement.graphs_captured = graphs.at("captured").count();
    measurement.graph_nodes = graphs.at("nodes").count();
    measurement.graph_launches = graphs.at("launches_per_step").count();
}

}  // namespace

Measurement read_measurement(const Json& document, const std::string& file) {
    const Place top(document, file, "");
    Measurement measurement;
    measurement.scenario = top.at("scenario_name").text();
    measurement.implementation = top.at("implementation").text();
    measurement.pipeline_rank = top.at("pipeline_rank").count();
    measurement.policy = top.at("policy").text();
    measurement.allocator = top.at("allocator").text();
    measurement.machine = machine_of(top.at("machine"));
    measurement.warmup_steps = top.at("warmup_steps").count();
    for (const Place& sample : top.at("samples").list()) measurement.samples.push_back(sample_of(sample));
    measurement.event_times = times_of(top.at("step_time_us"));
    measurement.wall_times = times_of(top.at("wall_time_us"));
    measurement.launch_times = times_of(top.at("host_launch_us"));
    read_memory(top, measurement);
    read_graphs(top.at("graphs"), measurement);
    read_results(top, measurement);
    measurement.profile = profile_of(top.at("profile"));
    return measurement;
}

}  // namespace stowage::reports
