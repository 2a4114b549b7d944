#include "planner/rules/rule_words.hpp"

#include <fmt/format.h>

namespace stowage::rules {

types::ModuleSet common(types::ModuleSet left, types::ModuleSet right) {
    types::ModuleSet both;
    for (const types::Module module : left.list())
        if (right.contains(module)) both.insert(module);
    return both;
}

types::ModuleSet opened_modules(const Case& c) {
    if (c.scenario.recompute.recompute_granularity == types::RecomputeGranularity::full) return {};
    types::ModuleSet opened = c.choice.modules;
    if (!c.own_layers() && c.recomputes(types::RecomputeModule::core_attn)) opened.erase(types::Module::core_attn);
    return opened;
}

Offence modules_if_any(types::ModuleSet modules) {
    if (modules.empty()) return std::nullopt;
    return fmt::format("offload_modules [{}]", modules.joined(", "));
}

std::string graph_words(const Case& c) {
    std::string listed;
    for (const types::CudaGraphModule module : c.scenario.cuda_graph.cuda_graph_modules)
        listed += (listed.empty() ? "" : ", ") + std::string(types::name_of(module));
    return fmt::format("cuda_graph_impl {} with cuda_graph_modules [{}]", types::name_of(c.impl()), listed);
}

std::string layers_where(const types::Model& model, const std::function<bool(std::int64_t)>& picks) {
    std::string ranges;
    bool several = false;
    for (std::int64_t first = 0; first < model.num_layers; ++first) {
        if (!picks(first)) continue;
        std::int64_t last = first;
        while (last + 1 < model.num_layers && picks(last + 1)) ++last;
        several = several || last > first || !ranges.empty();
        ranges += fmt::format("{}{}", ranges.empty() ? "" : ", ", first + 1);
        if (last > first) ranges += fmt::format("-{}", last + 1);
        first = last;
    }
    if (ranges.empty()) return "no layer";
    return (several ? "layers " : "layer ") + ranges;
}

bool any_layer(const types::Model& model, const std::function<bool(std::int64_t)>& picks) {
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
        if (picks(layer)) return true;
    return false;
}

}  // namespace stowage::rules
