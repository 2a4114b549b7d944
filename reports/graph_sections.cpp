#include "reports/graph_sections.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/table.hpp"
#include "reports/units.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::reports {
namespace {

std::int64_t count(const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); }

std::string scope_words(const Json& graph) {
    if (graph.at("cuda_graph_impl") == "full_iteration") return "forwards and backwards of a step as one graph";
    const Json& modules = graph.at("cuda_graph_modules");
    if (modules.empty()) return "whole layers";
    std::string words;
    for (const Json& module : modules) words += (words.empty() ? "" : " ") + module.get<std::string>();
    return words;
}

}  // namespace

std::string graph_words(const Json& scenario) {
    const Json& graph = scenario.at("cuda_graph");
    const std::string implementation = graph.at("cuda_graph_impl").get<std::string>();
    if (implementation == "none") return {};
    const std::int64_t warm_up = count(graph, "cuda_graph_warmup_steps");
    return fmt::format("{}, capturing {} after {} eager iteration{}", implementation, scope_words(graph), warm_up,
                       warm_up == 1 ? "" : "s");
}

bool have_graphs(const Json& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [](const Json& rank) { return rank.contains("graphs"); });
}

std::int64_t executable_graphs(const Json& rank) {
    return rank.contains("graphs") ? count(rank.at("graphs"), "executable_bytes") : 0;
}

std::int64_t peak_device(const Json& json) {
    return json.contains("peak_device_bytes") ? count(json, "peak_device_bytes") : count(json, "peak_reserved_bytes");
}

std::string graphs_section(const Json& ranks) {
    if (!have_graphs(ranks)) return {};
    Table table({{"PP rank"},
                 {"graphs"},
                 {"launches a step"},
                 {"input sets"},
                 {"without reuse"},
                 {"private pool GiB"},
                 {"executable MiB"}});
    for (const Json& rank : ranks) {
        if (!rank.contains("graphs")) continue;
        const Json& graphs = rank.at("graphs");
        table.add({rank.at("pipeline_rank").dump(), graphs.at("captured").dump(), graphs.at("launches_per_step").dump(),
                   graphs.at("static_input_sets").dump(), graphs.at("static_input_sets_without_reuse").dump(),
                   gib(count(graphs, "private_pools_bytes")),
                   fmt::format("{:.2f}", types::in_mib(types::Bytes{count(graphs, "executable_bytes")}))});
    }
    return "\nGraphs: the private pool is part of what is reserved, executable graphs are the driver's beside it\n" +
           table.text();
}

}  // namespace stowage::reports
