#include "reports/measurement_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/sections.hpp"
#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

constexpr std::size_t kLabelsShown = 10;

std::int64_t count(const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); }
double real(const Json& object, const char* key) { return object.at(key).get<double>(); }
std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::string labelled(const char* label, const std::string& words) {
    return fmt::format("  {:<10}{}\n", label, wrapped(words, 12));
}

std::string signed_percent(const Json& error) {
    return error.is_null() ? "-" : fmt::format("{:+.1f} %", 100 * error.get<double>());
}

std::string joined(const Json& words, const char* between) {
    std::string text;
    for (const Json& word : words) text += (text.empty() ? "" : between) + word.get<std::string>();
    return text;
}

std::string device_words(const Json& machine) {
    return fmt::format("{}, {} multiprocessors, {} GiB; CUDA {}, driver up to {}, cuBLASLt {}, cuDNN {}",
                       text(machine, "device"), count(machine, "multiprocessors"), gib(count(machine, "memory_bytes")),
                       text(machine, "runtime"), text(machine, "driver"), text(machine, "cublaslt"),
                       text(machine, "cudnn"));
}

std::string graph_words(const Json& graphs) {
    if (count(graphs, "captured") == 0) return {};
    return labelled("graphs", fmt::format("{}: {} captured, {} nodes, {} launches a step", text(graphs, "kind"),
                                          count(graphs, "captured"), grouped(count(graphs, "nodes")),
                                          count(graphs, "launches_per_step")));
}

std::string sample_words(const Json& sample) {
    std::string words = text(sample, "when") + ":";
    const auto add = [&](const char* key, const char* unit, const char* form) {
        if (!sample.at(key).is_null())
            words += fmt::format(fmt::runtime(std::string(" ") + form + " " + unit), real(sample, key));
    };
    add("sm_clock_mhz", "MHz", "{:.0f}");
    add("power_watts", "W", "{:.0f}");
    add("temperature_celsius", "C", "{:.0f}");
    if (!sample.at("throttle_reasons").empty())
        words += ", held back by " + joined(sample.at("throttle_reasons"), " and ");
    return words;
}

std::string clocks_words(const Json& samples) {
    std::string words;
    for (const Json& sample : samples) words += (words.empty() ? "" : "; ") + sample_words(sample);
    return words.empty() ? words : labelled("clocks", words);
}

std::string steps_words(const Json& document) {
    const Json& times = document.at("step_time_us");
    if (times.is_null())
        return fmt::format("none timed, {} run before the gradients were taken", count(document, "warmup_steps"));
    return fmt::format("{} timed after {}: {} to {} ms, 10 % below {}, 90 % below {}", times.at("all").size(),
                       count(document, "warmup_steps"), milliseconds(real(times, "smallest")),
                       milliseconds(real(times, "largest")), milliseconds(real(times, "p10")),
                       milliseconds(real(times, "p90")));
}

std::string head(const Json& document) {
    std::string section =
        fmt::format("{}: pipeline rank {} executed, policy {}, {} allocator\n\n", text(document, "scenario_name"),
                    count(document, "pipeline_rank"), text(document, "policy"), text(document, "allocator"));
    section += labelled("device", device_words(document.at("machine")));
    section += labelled("offloads", choice_words(document.at("choice")));
    section += graph_words(document.at("graphs"));
    section += labelled("steps", steps_words(document));
    section += clocks_words(document.at("samples"));
    if (!document.at("debug_modes").empty())
        section += labelled("debug", joined(document.at("debug_modes"), ", ") +
                                         ": these find faults and cost time; no time here is a step's");
    return section;
}

double median(const Json& times) { return times.is_null() ? 0 : real(times, "median"); }

std::string comparison(const Json& document) {
    const Json& predicted = document.at("predicted");
    const Json& errors = document.at("errors");
    const Json& profile = document.at("profile");
    Table table({{"", Table::Align::left}, {"predicted"}, {"measured"}, {"error"}});
    const double step = median(document.at("step_time_us"));
    table.add({"step, ms", milliseconds(real(predicted, "step_time_us")), step > 0 ? milliseconds(step) : "-",
               signed_percent(errors.at("step_time"))});
    if (!profile.is_null())
        table.add({"exposed copy, ms", milliseconds(real(predicted, "exposed_copy_us")),
                   milliseconds(real(profile, "exposed_copy_us")), ""});
    const auto memory = [&](const char* name, const char* key, const char* error) {
        table.add({name, gib(count(predicted, key)), gib(count(document, key)), signed_percent(errors.at(error))});
    };
    memory("allocated peak, GiB", "peak_allocated_bytes", "peak_allocated");
    memory("reserved peak, GiB", "peak_reserved_bytes", "peak_reserved");
    if (count(predicted, "pinned_bytes") > 0 || count(document, "pinned_bytes") > 0)
        memory("pinned, GiB", "pinned_bytes", "pinned");
    return "\nA steady step\n" + table.text();
}

std::string stages(const Json& document) {
    Table table({{"stage", Table::Align::left}, {"allocated"}, {"reserved"}, {"driver"}, {"device calls"}});
    for (const Json& stage : document.at("memory"))
        table.add({text(stage, "stage"), gib(count(stage, "peak_allocated_bytes")),
                   gib(count(stage, "peak_reserved_bytes")), gib(count(stage, "driver_used_bytes")),
                   grouped(count(stage, "device_calls"))});
    return "\nMemory by stage of the run, GiB: peaks, and what the driver had given at the stage's end\n" +
           table.text();
}

/// Decimal, as rates of links are.
std::string gigabytes_per_second(double bytes, double microseconds) {
    return microseconds > 0 ? fmt::format("{:.1f}", bytes / microseconds / 1e3) : "-";
}

std::string copies(const Json& profile) {
    if (count(profile.at("device_to_host"), "bytes") + count(profile.at("host_to_device"), "bytes") == 0) return {};
    Table table({{"copies", Table::Align::left}, {"GiB"}, {"ms"}, {"GB/s"}, {"GB/s from 16 MiB"}});
    for (const auto& [name, key] : {std::pair{"to the host", "device_to_host"}, {"from the host", "host_to_device"}}) {
        const Json& one = profile.at(key);
        const double large = real(one, "from_16_mib_gb_per_s");
        table.add({name, gib(count(one, "bytes")), milliseconds(real(one, "busy_us")),
                   gigabytes_per_second(real(one, "bytes"), real(one, "busy_us")),
                   large > 0 ? fmt::format("{:.1f}", large) : "-"});
    }
    return "\n" + table.text();
}

std::string labels(const Json& profile) {
    std::vector<const Json*> order;
    for (const Json& label : profile.at("labels")) order.push_back(&label);
    std::stable_sort(order.begin(), order.end(), [](const Json* left, const Json* right) {
        return real(*left, "measured_us") > real(*right, "measured_us");
    });
    if (order.size() > kLabelsShown) order.resize(kLabelsShown);
    Table table({{"operation", Table::Align::left},
                 {"stream", Table::Align::left},
                 {"runs"},
                 {"predicted ms"},
                 {"measured ms"},
                 {"error"}});
    for (const Json* label : order) {
        const double measured = real(*label, "measured_us");
        const double predicted = real(*label, "predicted_us");
        table.add({text(*label, "label"), text(*label, "stream"), grouped(count(*label, "operations")),
                   milliseconds(predicted), milliseconds(measured),
                   signed_percent(measured > 0 ? Json(predicted / measured - 1) : Json(nullptr))});
    }
    return "\nWhat takes longest in the profiled step (predicted: alone on the device)\n" + table.text();
}

std::string host_words(const Json& document) {
    const double launch = median(document.at("host_launch_us"));
    const double step = median(document.at("step_time_us"));
    if (launch <= 0 || step <= 0) return {};
    return labelled("host",
                    fmt::format("{} ms to launch a step, {} of it", milliseconds(launch), percent(launch / step)));
}

/// Only where something is copied: without copies the step is its own floor.
std::string floor_words(const Json& document) {
    const Json& predicted = document.at("predicted");
    const double floor = real(predicted, "floor_us");
    const double step = median(document.at("step_time_us"));
    if (floor <= 0 || count(predicted, "pinned_bytes") == 0) return {};
    std::string words = fmt::format("{} ms is what these copies allow in any order", milliseconds(floor));
    if (step > 0 && document.at("debug_modes").empty())
        words += fmt::format("; the measured step is {} over it", percent(step / floor - 1));
    return labelled("floor", words);
}

std::string digest_words(const Json& document) {
    const Json& digests = document.at("digests");
    const std::int64_t steps = count(digests, "steps");
    if (steps == 0) return {};
    std::string words =
        fmt::format("{} over losses and gradients of {} step{}", text(digests, "run"), steps, steps == 1 ? "" : "s");
    const Json& losses = document.at("losses");
    if (!losses.empty())
        words += losses.back().is_null() ? "; the last loss is not finite"
                                         : fmt::format("; the last loss {:.6g}", losses.back().get<double>());
    return labelled("digest", words);
}

std::string records_words(const Json& profile) {
    const std::int64_t dropped = count(profile, "dropped_records");
    const std::int64_t unmatched = count(profile, "unmatched_records");
    if (dropped + unmatched == 0) return {};
    return labelled("profile",
                    fmt::format("incomplete: {} records dropped, {} not of any operation", dropped, unmatched));
}

}  // namespace

std::string measurement_text(const Json& measurement) {
    const Json& profile = measurement.at("profile");
    std::string report = head(measurement) + comparison(measurement) + stages(measurement);
    if (!profile.is_null()) report += copies(profile) + labels(profile);
    const std::string last = floor_words(measurement) + host_words(measurement) + digest_words(measurement) +
                             (profile.is_null() ? "" : records_words(profile));
    return last.empty() ? report : report + "\n" + last;
}

}  // namespace stowage::reports
