#include "planner/program/graph_surfaces.hpp"

#include <deque>
#include <map>
#include <set>

namespace stowage::program {
namespace {

using Sizes = std::vector<Bytes>;

void append(Sizes& buffers, const Sizes& more) { buffers.insert(buffers.end(), more.begin(), more.end()); }

/// Samples by the sizes of their tensors.
class Samples {
public:
    Samples(SurfacePlan& plan, std::size_t virtual_stages) : plan_(plan), in_use_(virtual_stages) {}

    void forward(std::size_t stage, const std::vector<GraphSurface>& graphs) {
        for (const GraphSurface& graph : graphs) {
            ++plan_.without_reuse;
            in_use_[stage].push_back(graph.inputs);
            if (std::int64_t& free = consumed_[graph.inputs]; free > 0) {
                --free;
                continue;
            }
            ++plan_.samples;
            append(plan_.inputs, graph.inputs);
        }
    }

    /// The oldest samples of the virtual stage, one for each of its graphs.
    void backward(std::size_t stage, std::size_t graphs) {
        for (; graphs > 0 && !in_use_[stage].empty(); --graphs) {
            ++consumed_[in_use_[stage].front()];
            in_use_[stage].pop_front();
        }
    }

private:
    SurfacePlan& plan_;
    std::map<Sizes, std::int64_t> consumed_;
    std::vector<std::deque<Sizes>> in_use_;
};

}  // namespace

std::vector<CapturedPass> capture_order(const PipelineShape& shape) {
    if (shape.ranks == 1) return {{Chunk{}, true}, {Chunk{}, false}};
    std::vector<CapturedPass> order;
    for (const ScheduleStep& entry : pipeline_schedule(shape)) {
        using Kind = ScheduleStep::Kind;
        if (entry.kind == Kind::forward || entry.kind == Kind::paired) order.push_back({entry.chunk, true});
        if (entry.kind == Kind::backward) order.push_back({entry.chunk, false});
        if (entry.kind == Kind::paired) order.push_back({entry.other, false});
    }
    return order;
}

SurfacePlan plan_surfaces(const std::vector<CapturedPass>& order,
                          const std::vector<std::vector<GraphSurface>>& surfaces, bool reuse) {
    SurfacePlan plan;
    Samples samples(plan, surfaces.size());
    std::set<Sizes> shared;
    for (const CapturedPass& pass : order) {
        const auto stage = static_cast<std::size_t>(pass.chunk.virtual_stage);
        const std::vector<GraphSurface>& graphs = surfaces[stage];
        if (pass.forward) {
            samples.forward(stage, graphs);
            continue;
        }
        if (reuse) samples.backward(stage, graphs.size());
        for (auto graph = graphs.rbegin(); graph != graphs.rend(); ++graph)
            if (!reuse || shared.insert(graph->gradients).second) append(plan.gradients, graph->gradients);
    }
    return plan;
}

}  // namespace stowage::program
