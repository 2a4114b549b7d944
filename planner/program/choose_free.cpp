#include "planner/program/choose_free.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "planner/program/offload_hooks.hpp"

namespace stowage::program {
namespace {

using types::Bytes;

bool recomputed(const layers::ChunkLayers& chunk, std::size_t position) {
    return std::any_of(chunk.recomputed.begin(), chunk.recomputed.end(), [&](const layers::RecomputedSpan& span) {
        return span.first <= position && position <= span.last;
    });
}

/// The last layer of the last virtual stage, whose backward follows its forward at once; -1 where a layer of
/// multi-token prediction comes between.
std::int64_t first_layer_backward(const layers::StageLayers& stage) {
    const layers::ChunkLayers& last = stage.chunks.back();
    const bool predicts = std::any_of(last.order.begin(), last.order.end(), [&](std::size_t script) {
        return stage.scripts[script].kind == layers::ScriptKind::mtp;
    });
    std::int64_t first = -1;
    for (const std::int64_t number : last.layer_numbers) first = std::max(first, number);
    return predicts ? -1 : first;
}

/// Calls `visit(layer number, module, bytes)` for every group that may leave, in the order of the forwards.
template <class Visit>
void for_each_group(const layers::StageLayers& stage, const types::OffloadChoice& choice, Visit&& visit) {
    const std::vector<FrameLayout> layouts = make_layouts(stage, choice);
    const std::int64_t first_backward = first_layer_backward(stage);
    for (const layers::ChunkLayers& chunk : stage.chunks)
        for (std::size_t position = 0; position < chunk.order.size(); ++position) {
            const std::int64_t number = chunk.layer_numbers[position];
            if (number < 0 || number == first_backward || recomputed(chunk, position)) continue;
            const FrameLayout& layout = layouts[chunk.order[position]];
            for (const types::Module module : layout.groups())
                if (layout.group_bytes(module) > Bytes{0}) visit(number, module, layout.group_bytes(module));
        }
}

struct Candidate {
    std::size_t layer = 0;
    types::Module module{};
    Bytes bytes;
};

bool captures_layers(const layers::StageLayers& stage) {
    return std::any_of(stage.graphs.layers.begin(), stage.graphs.layers.end(),
                       [](const auto& graphs) { return graphs.has_value(); });
}

/// A graph ends no sooner than its copies: each layer gives its smallest groups first, and no layer a second one before
/// the others have given as much.
void spread(std::vector<Candidate>& candidates) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
    std::map<std::size_t, Bytes> given;
    std::vector<std::pair<Bytes, Candidate>> order;
    for (const Candidate& candidate : candidates) {
        order.emplace_back(given[candidate.layer], candidate);
        given[candidate.layer] += candidate.bytes;
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(order.begin(), order.end(), candidates.begin(), [](const auto& entry) { return entry.second; });
}

}  // namespace

Bytes eligible_bytes(const layers::StageLayers& stage, const types::OffloadChoice& choice) {
    Bytes sum;
    for_each_group(stage, choice, [&](std::int64_t, types::Module, Bytes bytes) { sum += bytes; });
    return sum;
}

types::FreeOffload choose_free(const layers::StageLayers& stage, const types::OffloadChoice& choice, Bytes bytes) {
    types::FreeOffload chosen;
    std::size_t groups = 1;
    for (const FrameLayout& layout : make_layouts(stage, choice)) groups = std::max(groups, layout.groups().size());
    chosen.reload_ahead = static_cast<std::int64_t>(groups);
    chosen.join_after = static_cast<std::int64_t>(groups);
    std::vector<Candidate> candidates;
    for_each_group(stage, choice, [&](std::int64_t number, types::Module module, Bytes size) {
        candidates.push_back({static_cast<std::size_t>(number), module, size});
    });
    if (captures_layers(stage)) spread(candidates);
    Bytes sum;
    for (const Candidate& candidate : candidates) {
        if (sum >= bytes) break;
        sum += candidate.bytes;
        if (chosen.by_layer.size() <= candidate.layer) chosen.by_layer.resize(candidate.layer + 1);
        chosen.by_layer[candidate.layer].insert(candidate.module);
    }
    return chosen;
}

types::FreeOffload choose_free(const layers::StageLayers& stage, const types::OffloadChoice& choice, double fraction) {
    const Bytes all = eligible_bytes(stage, choice);
    return choose_free(stage, choice, Bytes{std::llround(fraction * static_cast<double>(all.count))});
}

void add_layers(types::FreeOffload& choice, const types::FreeOffload& other) {
    choice.reload_ahead = std::max(choice.reload_ahead, other.reload_ahead);
    choice.join_after = std::max(choice.join_after, other.join_after);
    if (choice.by_layer.size() < other.by_layer.size()) choice.by_layer.resize(other.by_layer.size());
    for (std::size_t layer = 0; layer < other.by_layer.size(); ++layer)
        for (const types::Module module : other.by_layer[layer].list()) choice.by_layer[layer].insert(module);
}

}  // namespace stowage::program
