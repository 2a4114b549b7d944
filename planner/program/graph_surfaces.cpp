#include "planner/program/graph_surfaces.hpp"

#include <deque>
#include <map>

namespace stowage::program {
namespace {

using Sizes = std::vector<Bytes>;

void append(Sizes& buffers, const Sizes& more) { buffers.insert(buffers.end(), more.begin(), more.end()); }

/// The buffers of one captured forward, which its backward reads too.
struct Sample {
    Sizes sizes;
    std::uint32_t begin = 0;
};

/// Samples by the sizes of their tensors.
class Samples {
public:
    Samples(SurfacePlan& plan, std::size_t virtual_stages) : plan_(plan), in_use_(virtual_stages) {}

    void forward(Chunk chunk, const std::vector<GraphSurface>& graphs) {
        std::vector<std::uint32_t>& begins = of_chunk_[chunk];
        begins.clear();
        for (const GraphSurface& graph : graphs) {
            ++plan_.without_reuse;
            begins.push_back(take(graph.inputs));
            plan_.buffers.push_back({begins.back(), 0});
            in_use_[static_cast<std::size_t>(chunk.virtual_stage)].push_back({graph.inputs, begins.back()});
        }
    }

    /// The oldest samples of the virtual stage, one for each of its graphs.
    void consume(std::size_t stage, std::size_t graphs) {
        for (; graphs > 0 && !in_use_[stage].empty(); --graphs) {
            const Sample& oldest = in_use_[stage].front();
            consumed_[oldest.sizes].push_back(oldest.begin);
            in_use_[stage].pop_front();
        }
    }

    /// Of the forward of this graph of the chunk.
    [[nodiscard]] std::uint32_t begin_of(Chunk chunk, std::size_t graph) const { return of_chunk_.at(chunk).at(graph); }

private:
    std::uint32_t take(const Sizes& sizes) {
        if (std::deque<std::uint32_t>& free = consumed_[sizes]; !free.empty()) {
            const std::uint32_t begin = free.front();
            free.pop_front();
            return begin;
        }
        ++plan_.samples;
        const auto begin = static_cast<std::uint32_t>(plan_.inputs.size());
        append(plan_.inputs, sizes);
        return begin;
    }

    SurfacePlan& plan_;
    std::map<Sizes, std::deque<std::uint32_t>> consumed_;
    std::vector<std::deque<Sample>> in_use_;  ///< by virtual stage
    std::map<Chunk, std::vector<std::uint32_t>> of_chunk_;
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
    std::map<Sizes, std::uint32_t> shared;
    const auto gradients_of = [&](const Sizes& sizes) {
        const auto begin = static_cast<std::uint32_t>(plan.gradients.size());
        const auto [known, added] = shared.try_emplace(sizes, begin);
        if (reuse && !added) return known->second;
        append(plan.gradients, sizes);
        return begin;
    };
    for (const CapturedPass& pass : order) {
        const auto stage = static_cast<std::size_t>(pass.chunk.virtual_stage);
        const std::vector<GraphSurface>& graphs = surfaces[stage];
        if (pass.forward) {
            samples.forward(pass.chunk, graphs);
            continue;
        }
        for (std::size_t graph = graphs.size(); graph-- > 0;)
            plan.buffers.push_back({samples.begin_of(pass.chunk, graph), gradients_of(graphs[graph].gradients)});
        if (reuse) samples.consume(stage, graphs.size());
    }
    return plan;
}

}  // namespace stowage::program
