#include "reports/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

/// Quantities in the order in which they first occur.
std::vector<std::string> quantities(const Validation& validation) {
    std::vector<std::string> names;
    for (const ValidationRow& row : validation.rows)
        if (std::find(names.begin(), names.end(), row.quantity) == names.end()) names.push_back(row.quantity);
    return names;
}

ErrorSummary summary_of(const Validation& validation, const std::string& quantity) {
    std::vector<double> errors;
    for (const ValidationRow& row : validation.rows)
        if (row.quantity == quantity) errors.push_back(row.error());
    return summarize(std::move(errors));
}

Json summary_json(const ErrorSummary& summary) {
    return {{"rows", summary.rows},
            {"median_abs_error", summary.median},
            {"p90_abs_error", summary.p90},
            {"max_abs_error", summary.max},
            {"within_1_percent", summary.within_1_percent},
            {"within_5_percent", summary.within_5_percent}};
}

std::string fine_percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

std::string rows_text(const Validation& validation) {
    Table table({{"job", Table::Align::left},
                 {"gpu", Table::Align::left},
                 {"gpus"},
                 {"quantity", Table::Align::left},
                 {"predicted"},
                 {"measured"},
                 {"error"}});
    for (const ValidationRow& row : validation.rows)
        table.add({row.name, row.gpu, std::to_string(row.gpus), row.quantity, grouped(row.predicted),
                   grouped(row.measured), fmt::format("{:+.2f} %", 100 * row.error())});
    return table.text();
}

/// Features and the number of runs that are refused for them, most first.
std::string refused_text(const Validation& validation) {
    std::map<std::string, std::int64_t> runs;
    for (const RefusedRun& run : validation.refused)
        for (const std::string& feature : run.missing) ++runs[feature];
    std::vector<std::pair<std::string, std::int64_t>> list(runs.begin(), runs.end());
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& left, const auto& right) { return left.second > right.second; });
    Table table({{"runs"}, {"missing feature", Table::Align::left}});
    for (const auto& [feature, count] : list) table.add({std::to_string(count), feature});
    std::string names;
    for (const RefusedRun& run : validation.refused)
        names += fmt::format("  {} on {} {}\n", run.name, run.gpus, run.gpu);
    return table.text() + names;
}

std::string parts_text(const MemoryParts& parts) {
    Table states({{"between steps", Table::Align::left}, {"bytes"}});
    for (const MemoryParts::State& state : parts.between_steps) states.add({state.what, grouped(state.bytes)});
    states.add({"rounding of blocks", grouped(parts.rounding)});
    Table layers({{"saved by one forward", Table::Align::left}, {"layers"}, {"bytes of each"}});
    for (const MemoryParts::Layer& layer : parts.layers)
        layers.add({layer.name, std::to_string(layer.frames), grouped(layer.saved)});
    return fmt::format("{} on {} {}\n", parts.name, parts.gpus, parts.gpu) + states.text() + layers.text() +
           fmt::format("  from between steps to the peak: {} bytes\n", grouped(parts.within_step));
}

Json parts_json(const MemoryParts& parts) {
    Json json{{"name", parts.name}, {"gpu", parts.gpu}, {"gpus", parts.gpus}};
    json["between_steps"] = Json::array();
    for (const MemoryParts::State& state : parts.between_steps)
        json["between_steps"].push_back({{"what", state.what}, {"bytes", state.bytes}});
    json["rounding"] = parts.rounding;
    json["layers"] = Json::array();
    for (const MemoryParts::Layer& layer : parts.layers)
        json["layers"].push_back({{"name", layer.name}, {"frames", layer.frames}, {"saved", layer.saved}});
    json["within_step"] = parts.within_step;
    return json;
}

std::string summary_text(const Validation& validation) {
    Table table({{"quantity", Table::Align::left},
                 {"rows"},
                 {"median"},
                 {"90th"},
                 {"largest"},
                 {"within 1 %"},
                 {"within 5 %"}});
    for (const std::string& quantity : quantities(validation)) {
        const ErrorSummary summary = summary_of(validation, quantity);
        table.add({quantity, std::to_string(summary.rows), fine_percent(summary.median), fine_percent(summary.p90),
                   fine_percent(summary.max), percent(summary.within_1_percent), percent(summary.within_5_percent)});
    }
    return table.text();
}

}  // namespace

ErrorSummary summarize(std::vector<double> errors) {
    ErrorSummary summary;
    if (errors.empty()) return summary;
    for (double& error : errors) error = std::abs(error);
    std::sort(errors.begin(), errors.end());
    const std::size_t count = errors.size();
    const auto share_within = [&](double limit) {
        const auto end = std::upper_bound(errors.begin(), errors.end(), limit);
        return static_cast<double>(end - errors.begin()) / static_cast<double>(count);
    };
    summary.rows = static_cast<std::int64_t>(count);
    summary.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(count);
    summary.median = (errors[(count - 1) / 2] + errors[count / 2]) / 2;
    summary.p90 = errors[(9 * count + 9) / 10 - 1];
    summary.max = errors.back();
    summary.within_1_percent = share_within(0.01);
    summary.within_5_percent = share_within(0.05);
    return summary;
}

Json validation_json(const Validation& validation) {
    Json json;
    json["schema"] = "stowage/validation/1";
    json["table"] = validation.table;
    json["summary"] = Json::object();
    for (const std::string& quantity : quantities(validation))
        json["summary"][quantity] = summary_json(summary_of(validation, quantity));
    json["refused"] = Json::array();
    for (const RefusedRun& run : validation.refused)
        json["refused"].push_back({{"name", run.name}, {"gpu", run.gpu}, {"gpus", run.gpus}, {"missing", run.missing}});
    if (!validation.parts.empty()) json["parts"] = Json::array();
    for (const MemoryParts& parts : validation.parts) json["parts"].push_back(parts_json(parts));
    json["rows"] = Json::array();
    for (const ValidationRow& row : validation.rows)
        json["rows"].push_back({{"name", row.name},
                                {"gpu", row.gpu},
                                {"gpus", row.gpus},
                                {"quantity", row.quantity},
                                {"predicted", row.predicted},
                                {"measured", row.measured},
                                {"error", row.error()}});
    return json;
}

std::string validation_text(const Validation& validation) {
    std::string text = fmt::format("Predicted beside recorded, {}\n", validation.table) + rows_text(validation);
    if (!validation.refused.empty())
        text += fmt::format("Not predicted: {} runs\n", validation.refused.size()) + refused_text(validation);
    for (const MemoryParts& parts : validation.parts) text += parts_text(parts);
    return text + "Errors, as fractions of what was recorded\n" + summary_text(validation);
}

}  // namespace stowage::reports
