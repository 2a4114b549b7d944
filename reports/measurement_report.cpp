#include "reports/measurement_report.hpp"

#include <fmt/format.h>

#include "reports/document.hpp"
#include "reports/measurement_json.hpp"
#include "reports/measurement_reader.hpp"
#include "reports/table.hpp"
#include "reports/units.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::reports {
namespace {

struct Quantity {
    const char* key;    ///< of the measured value, and in `predicted`
    const char* error;  ///< key in `errors`
    const char* words;
    bool is_time = false;
};
constexpr Quantity kQuantities[] = {{"step_time_us", "step_time", "step, ms", true},
                                    {"peak_allocated_bytes", "peak_allocated", "allocated, GiB"},
                                    {"peak_reserved_bytes", "peak_reserved", "reserved, GiB"},
                                    {"pinned_bytes", "pinned", "pinned, GiB"}};

/// Null where nothing was measured.
Json measured(const Json& document, const Quantity& quantity) {
    const Json& value = document.at(quantity.key);
    return value.is_object() ? value.at("median") : value;
}

std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

/// Where two scenarios are the same job, whatever they offload.
Json without_offload(Json scenario) {
    scenario.erase("offload");
    return scenario;
}

[[noreturn]] void refuse(const std::string& file, const std::string& reason, const std::string& hint) {
    throw types::InputError(fmt::format("{}: error: {}\nhint: {}", file, reason, hint));
}

std::string error_cell(const Json& error) {
    return error.is_null() ? "-" : fmt::format("{:+.1f} %", 100 * error.get<double>());
}

/// In a table for people, in the unit of its heading.
std::string cell(const Json& value, bool is_time) {
    if (value.is_null()) return "-";
    return is_time ? milliseconds(value.get<double>()) : gib(value.get<std::int64_t>());
}

/// A name with a comma or a quotation mark in quotation marks, doubled inside. Source: RFC 4180.
std::string csv_cell(const std::string& words) {
    if (words.find_first_of(",\"\n\r") == std::string::npos) return words;
    std::string quoted = "\"";
    for (const char letter : words) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    return quoted + "\"";
}

std::string csv_number(const Json& value) { return value.is_null() ? "" : value.dump(); }

}  // namespace

MeasuredFile measurement_beside(const Json& plan, const std::string& file) {
    MeasuredFile measured{file, read_document(file, kMeasurementSchema)};
    const recording::Measurement measurement = read_measurement(measured.document, file);
    const std::string planned = text(plan, "implementation");
    if (measurement.implementation != planned)
        refuse(
            file,
            fmt::format("implementation: found layers of {}, the plan is of {}", measurement.implementation, planned),
            "a prediction is compared with a measurement of the same implementation only");
    const bool same = reading(file, [&] {
        return without_offload(measured.document.at("scenario")) == without_offload(plan.at("scenario"));
    });
    if (!same) refuse(file, "scenario: is another job than the plan's", "execute the plan itself, or its scenario");
    return measured;
}

std::string measured_section(const std::vector<MeasuredFile>& measurements) {
    Table table({{"file", Table::Align::left},
                 {"PP rank"},
                 {"policy", Table::Align::left},
                 {"allocator", Table::Align::left},
                 {"", Table::Align::left},
                 {"predicted"},
                 {"measured"},
                 {"error"}});
    for (const auto& [file, document] : measurements) {
        bool first = true;
        for (const Quantity& quantity : kQuantities) {
            table.add({first ? file : "", first ? document.at("pipeline_rank").dump() : "",
                       first ? text(document, "policy") : "", first ? text(document, "allocator") : "", quantity.words,
                       cell(document.at("predicted").at(quantity.key), quantity.is_time),
                       cell(measured(document, quantity), quantity.is_time),
                       error_cell(document.at("errors").at(quantity.error))});
            first = false;
        }
    }
    return "\nMeasured, each beside the prediction for its own policy and allocator\n" + table.text();
}

std::string measured_csv(const std::vector<MeasuredFile>& measurements) {
    std::string csv = "file,pipeline_rank,policy,allocator,quantity,predicted,measured,error\n";
    for (const auto& [file, document] : measurements)
        for (const Quantity& quantity : kQuantities)
            csv += fmt::format("{},{},{},{},{},{},{},{}\n", csv_cell(file), document.at("pipeline_rank").dump(),
                               text(document, "policy"), text(document, "allocator"), quantity.key,
                               csv_number(document.at("predicted").at(quantity.key)),
                               csv_number(measured(document, quantity)),
                               csv_number(document.at("errors").at(quantity.error)));
    return csv;
}

}  // namespace stowage::reports
