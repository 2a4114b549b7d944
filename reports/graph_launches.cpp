#include "reports/graph_launches.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace stowage::reports {
namespace {

using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::TimelineEntry;

/// Captured instance and operation: later places were captured later.
using Place = std::pair<std::uint32_t, std::uint32_t>;

const std::vector<Operation>& operations(const StepProgram& program, const program::Instance& instance) {
    return program.bodies[program::index(instance.body)].operations;
}

const Operation* launch_of(const StepProgram& program, const program::Instance& instance) {
    for (const Operation& operation : operations(program, instance))
        if (operation.kind == OperationKind::graph_launch) return &operation;
    return nullptr;
}

/// Where a graph records its external event.
std::optional<Place> external_event(const StepProgram& program, const program::Graph& graph) {
    for (std::uint32_t captured = graph.begin; captured < graph.end; ++captured) {
        const std::vector<Operation>& nodes = operations(program, program.instances(RunStage::capture)[captured]);
        for (std::uint32_t i = 0; i < nodes.size(); ++i)
            if (nodes[i].kind == OperationKind::event_record && nodes[i].scope == program::kGraphScope)
                return Place{captured, i};
    }
    return std::nullopt;
}

class Launches {
public:
    explicit Launches(const StepProgram& program) : program_(program) {
        for (const program::Graph& graph : program.graphs) events_.push_back(external_event(program, graph));
    }

    void add(const TimelineEntry& entry) {
        const program::Instance& instance = program_.instances(RunStage::steady)[entry.instance];
        const auto [found, first] = launches_.try_emplace(entry.instance);
        GraphLaunch& launch = found->second;
        if (first) {
            launch = {entry.instance, launch_of(program_, instance), program::Stream::main, entry.start, entry.end, {}};
            if (launch.operation != nullptr) launch.stream = launch.operation->stream;
        }
        launch.start = std::min(launch.start, entry.start);
        launch.end = std::max(launch.end, entry.end);
        const std::optional<Place>& event = events_[instance.graph];
        if (!event || entry.stream != launch.stream || Place{entry.captured, entry.operation} > *event) return;
        launch.external_event = std::max(launch.external_event.value_or(entry.end), entry.end);
    }

    [[nodiscard]] std::vector<GraphLaunch> list() const {
        std::vector<GraphLaunch> list;
        for (const auto& [instance, launch] : launches_)
            if (launch.operation != nullptr) list.push_back(launch);
        return list;
    }

private:
    const StepProgram& program_;
    std::vector<std::optional<Place>> events_;  ///< by graph
    std::map<std::uint32_t, GraphLaunch> launches_;
};

}  // namespace

std::vector<GraphLaunch> graph_launches(const StepProgram& program, const program::StageTimeline& timeline) {
    Launches launches(program);
    for (const TimelineEntry& entry : timeline.entries)
        if (entry.in_graph()) launches.add(entry);
    return launches.list();
}

}  // namespace stowage::reports
