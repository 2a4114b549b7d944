#include "reports/rank_csv.hpp"

#include <set>

namespace stowage::reports {
namespace {

constexpr const char* kColumns[] = {"rank",
                                    "pipeline_rank",
                                    "layers",
                                    "static_bytes",
                                    "peak_allocated_bytes",
                                    "peak_reserved_bytes",
                                    "pinned_host_bytes",
                                    "step_time_us",
                                    "main_stream_busy_us",
                                    "exposed_copy_us",
                                    "device_to_host_busy_us",
                                    "host_to_device_busy_us"};

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
    csv += "\r\n";
    for (const Json& rank : ranks) {
        std::string line;
        for (const char* column : kColumns) line += (line.empty() ? "" : ",") + rank.at(column).dump();
        for (const std::string& module : modules)
            line += "," + std::to_string(rank.at("offloaded_bytes").value(module, std::int64_t{0}));
        csv += line + "\r\n";
    }
    return csv;
}

}  // namespace stowage::reports
