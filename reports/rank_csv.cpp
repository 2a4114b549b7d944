#include "reports/rank_csv.hpp"

#include <fmt/format.h>

#include <set>

#include "reports/graph_sections.hpp"

namespace stowage::reports {
namespace {

constexpr const char* kColumns[] = {"rank",
                                    "pipeline_rank",
                                    "layers",
                                    "static_bytes",
                                    "peak_allocated_bytes",
                                    "peak_reserved_bytes",
                                    "peak_device_bytes",
                                    "pinned_host_bytes",
                                    "step_time_us",
                                    "main_stream_busy_us",
                                    "exposed_copy_us",
                                    "device_to_host_busy_us",
                                    "host_to_device_busy_us"};

/// Only with graphs; cells of a rank without any are empty.
constexpr const char* kGraphColumns[] = {"captured",
                                         "launches_per_step",
                                         "static_input_sets",
                                         "static_input_sets_without_reuse",
                                         "private_pools_bytes",
                                         "executable_bytes"};

struct StageColumn {
    const char* stage;
    const char* peak;
};
constexpr StageColumn kStageColumns[] = {
    {"first_iteration", "peak_allocated_bytes"},  {"first_iteration", "peak_reserved_bytes"},
    {"eager_iterations", "peak_allocated_bytes"}, {"eager_iterations", "peak_reserved_bytes"},
    {"capture", "peak_allocated_bytes"},          {"capture", "peak_reserved_bytes"},
    {"later_iterations", "peak_allocated_bytes"}, {"later_iterations", "peak_reserved_bytes"}};

std::string graph_headings() {
    std::string headings;
    for (const auto& [stage, peak] : kStageColumns) headings += fmt::format(",{}_{}", stage, peak);
    for (const char* column : kGraphColumns) headings += fmt::format(",graphs_{}", column);
    return headings;
}

/// Empty where there is no such value.
std::string cell(const Json& rank, const char* object, const char* key) {
    return "," + (rank.contains(object) ? rank.at(object).at(key).dump() : std::string());
}

std::string graph_cells(const Json& rank) {
    std::string cells;
    for (const auto& [stage, peak] : kStageColumns) cells += cell(rank, stage, peak);
    for (const char* column : kGraphColumns) cells += cell(rank, "graphs", column);
    return cells;
}

/// Plans of older versions have no peak of the device beside the reserved one.
std::string value_of(const Json& rank, const std::string& column) {
    return column == "peak_device_bytes" ? std::to_string(peak_device(rank)) : rank.at(column).dump();
}

std::set<std::string> moved_modules(const Json& ranks) {
    std::set<std::string> modules;
    for (const Json& rank : ranks)
        for (const auto& [module, bytes] : rank.at("offloaded_bytes").items()) modules.insert(module);
    return modules;
}

}  // namespace

std::string rank_csv(const Json& document) {
    const Json& ranks = document.contains("smallest") ? document.at("smallest").at("ranks") : document.at("ranks");
    const std::set<std::string> modules = moved_modules(ranks);
    std::string csv;
    for (const char* column : kColumns) csv += (csv.empty() ? "" : ",") + std::string(column);
    for (const std::string& module : modules) csv += ",offloaded_" + module + "_bytes";
    const bool graphs = have_graphs(ranks);
    if (graphs) csv += graph_headings();
    csv += "\r\n";
    for (const Json& rank : ranks) {
        std::string line;
        for (const char* column : kColumns) line += (line.empty() ? "" : ",") + value_of(rank, column);
        for (const std::string& module : modules)
            line += "," + std::to_string(rank.at("offloaded_bytes").value(module, std::int64_t{0}));
        csv += line + (graphs ? graph_cells(rank) : "") + "\r\n";
    }
    return csv;
}

}  // namespace stowage::reports
