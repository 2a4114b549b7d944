#include <fmt/format.h>

#include <algorithm>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {
namespace {

using types::Nanoseconds;

struct LaunchRow {
    double kernels = 0;
    double branches = 0;
    double us = 0;
};

std::vector<LaunchRow> launch_rows(const Measurements& measurements) {
    std::vector<LaunchRow> rows;
    for (const GraphLaunches& launches : measurements.graph_launches)
        for (const double us : launches.launch_us)
            rows.push_back({static_cast<double>(launches.shape.kernels), launches.shape.branches - 1.0, us});
    return rows;
}

std::vector<CaseError> launch_cases(const Measurements& measurements, const Fit& fit) {
    std::vector<CaseError> cases;
    for (const GraphLaunches& launches : measurements.graph_launches) {
        if (launches.launch_us.empty()) continue;
        const GraphShape& shape = launches.shape;
        cases.push_back({fmt::format("graph of {} kernels and {} forked copies", shape.kernels, shape.branches - 1),
                         median(launches.launch_us),
                         fit.value(0) + fit.value(1) * shape.kernels + fit.value(2) * (shape.branches - 1),
                         {}});
    }
    return cases;
}

void fit_launches(const Measurements& measurements, const Draft& draft) {
    const std::vector<LaunchRow> rows = launch_rows(measurements);
    if (rows.size() < 3) return draft.from_base(Section::graph, "launch");
    FitProblem problem{
        {{"launch_us", 2, 0, 1000}, {"launch_per_node_us", 0.001, 0, 10}, {"launch_per_branch_us", 1, 0, 1000}},
        rows.size(),
        [&](std::span<const double> p, std::size_t row) {
            const LaunchRow& one = rows[row];
            return (p[0] + p[1] * one.kernels + p[2] * one.branches) / one.us - 1;
        }};
    const Fit fit = fit_robustly(problem);
    types::GraphCosts& graph = draft.node().graph;
    const std::array<Nanoseconds types::GraphCosts::*, 3> members{
        &types::GraphCosts::launch, &types::GraphCosts::launch_per_node, &types::GraphCosts::launch_per_branch};
    for (std::size_t i = 0; i < members.size(); ++i) {
        const FittedParameter& parameter = fit.parameters[i];
        draft.figure("graph " + parameter.name.substr(0, parameter.name.size() - 3), "us",
                     {parameter.value - parameter.error, parameter.value, parameter.value + parameter.error},
                     types::in_microseconds(graph.*members.at(i)));
        graph.*members.at(i) = nanoseconds(parameter.value);
    }
    draft.calibration().fits.push_back({"graph launch", fit, launch_cases(measurements, fit)});
    draft.source(Section::graph, "launch",
                 "measured on an idle device, host time; a fit: " +
                     quality_text(fit, measurements.graph_launches.size()) + "; a branch is a forked copy");
}

/// Memory of graphs by kernels and branches. Some of it is in the context already, which the first graphs get.
void fit_graph_memory(const Measurements& measurements, const Draft& draft) {
    const std::vector<GraphStock>& stocks = measurements.graph_stocks;
    if (stocks.size() < 4) return draft.from_base(Section::graph, "memory");
    constexpr double kKiB = 1024;
    FitProblem problem{{{"graph KiB", 100, 0, 1e5},
                        {"node KiB", 2, 0, 1e3},
                        {"branch KiB", 100, 0, 1e5},
                        {"there already KiB", 1024, 0, 65536}},
                       stocks.size(),
                       [&](std::span<const double> p, std::size_t row) {
                           const GraphStock& stock = stocks[row];
                           const double each = p[0] + p[1] * stock.shape.kernels + p[2] * (stock.shape.branches - 1.0);
                           const double taken = each * stock.graphs - (row == 0 ? p[3] : 0);
                           return taken / std::max(1.0, static_cast<double>(stock.taken.count) / kKiB) - 1;
                       }};
    const Fit fit = fit_robustly(problem);
    types::GraphCosts& graph = draft.node().graph;
    const std::array<Bytes types::GraphCosts::*, 3> members{&types::GraphCosts::memory_per_graph,
                                                            &types::GraphCosts::memory_per_node,
                                                            &types::GraphCosts::memory_per_branch};
    const std::array<const char*, 3> names{"memory of a graph", "memory of a node", "memory of a branch"};
    for (std::size_t i = 0; i < members.size(); ++i) {
        const FittedParameter& parameter = fit.parameters[i];
        draft.figure(std::string("graph ") + names.at(i), "KiB",
                     {parameter.value - parameter.error, parameter.value, parameter.value + parameter.error},
                     static_cast<double>((graph.*members.at(i)).count) / kKiB);
        graph.*members.at(i) = Bytes{static_cast<std::int64_t>(rounded(parameter.value * kKiB, 3))};
    }
    draft.calibration().fits.push_back({"graph memory", fit, {}});
    draft.source(Section::graph, "memory",
                 fmt::format("measured; {} graphs of each of {} shapes, all kept, by cudaMemGetInfo; largest error of "
                             "the fit {:.1f} %",
                             stocks.front().graphs, stocks.size(), 100 * fit.largest));
}

void fit_instantiation(const Measurements& measurements, const Draft& draft) {
    for (const GraphStock& stock : measurements.graph_stocks) {
        if (stock.shape != GraphShape{50, 1}) continue;
        types::GraphCosts& graph = draft.node().graph;
        const double us = stock.instantiate_us / stock.shape.kernels;
        draft.figure("graph instantiation of a node", "us", {us, us, us},
                     types::in_microseconds(graph.instantiate_per_node));
        graph.instantiate_per_node = nanoseconds(us);
        return draft.source(Section::graph, "instantiate_per_node",
                            fmt::format("measured; {} graphs of 50 kernels, memory new", stock.graphs));
    }
    draft.from_base(Section::graph, "instantiate_per_node");
}

}  // namespace

void fit_graphs(const Measurements& measurements, const Draft& draft) {
    fit_launches(measurements, draft);
    fit_instantiation(measurements, draft);
    fit_graph_memory(measurements, draft);
    draft.from_base(Section::graph, "framework");
}

}  // namespace stowage::calibrate
