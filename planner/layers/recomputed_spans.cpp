#include "planner/layers/recomputed_spans.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::layers {

std::vector<RecomputedSpan> recomputed_spans(const types::Recompute& recompute,
                                             const std::vector<std::int64_t>& layer_numbers) {
    if (recompute.recompute_granularity != types::RecomputeGranularity::full) return {};
    const auto is_layer = [](std::int64_t number) { return number >= 0; };
    const auto begin = std::find_if(layer_numbers.begin(), layer_numbers.end(), is_layer);
    const auto end = std::find_if_not(begin, layer_numbers.end(), is_layer);
    const auto first = static_cast<std::size_t>(begin - layer_numbers.begin());
    const auto count = static_cast<std::size_t>(end - begin);
    const auto layers = static_cast<std::size_t>(recompute.recompute_num_layers.value_or(1));
    const bool uniform = recompute.recompute_method == types::RecomputeMethod::uniform;
    STOWAGE_CHECK(layers > 0 || !uniform, "a group of recomputed layers has at least one");
    const std::size_t step = uniform ? layers : 1;
    const std::size_t recomputed = uniform ? count : std::min(layers, count);
    std::vector<RecomputedSpan> spans;
    for (std::size_t at = 0; at < recomputed; at += step)
        spans.push_back({first + at, first + std::min(at + step, recomputed) - 1});
    return spans;
}

}  // namespace stowage::layers
